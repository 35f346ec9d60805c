"""What a machine can and can't do for trials: `examination` runs here, `probe` on a throwaway node."""

from harness.doctor.examination import Examination, Finding, examine

__all__ = ["Examination", "Finding", "examine"]
