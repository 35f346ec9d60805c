"""A process' own view of time, moved through its vDSO.

Programs read the clock through the vDSO, code that the kernel maps into every process. Writing to it makes a private
copy of its pages, so that one process alone can be given another time; the machine's clock is never touched. The
patch: a routine in the unused end of the mapping, that makes the real system call and adds an offset, and a jump to
it at the entry of each function. All threads are stopped by ptrace meanwhile, not by SIGSTOP: it leaves no trace in
the process' signal state, shows every register, and lets go by itself should this agent be killed.
"""
