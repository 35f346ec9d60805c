"""What a machine can and can't do for trials: `examination` runs here, `probe` on a throwaway node."""

from harness.doctor.examination import examine
from harness.doctor.findings import Examination, Finding

__all__ = ["Examination", "Finding", "examine"]
