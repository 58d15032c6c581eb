"""Measures how many bytes malloc has allocated that were not freed. Only a leak changes this number. Resident memory
also grows if freed blocks are scattered between allocated ones."""
import ctypes


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def bytes_in_use():
    """Returns the bytes in use by all threads. Needs glibc 2.33."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo2
    found = mallinfo2()
    return found.uordblks + found.hblkhd


def bytes_per_call(call, times):
    """Returns the bytes that each of this many calls leaks; the first calls, which fill caches, are not counted."""
    for _ in range(500):
        call()
    before = bytes_in_use()
    for _ in range(times):
        call()
    return (bytes_in_use() - before) / times
