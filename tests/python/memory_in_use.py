"""How many bytes malloc has given out and not got back. What a leak changes, and nothing else does: resident memory also
grows where what is freed lies in pieces between what is not."""
import ctypes


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def bytes_in_use():
    """Of all threads; from glibc 2.33."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo2
    found = mallinfo2()
    return found.uordblks + found.hblkhd


def bytes_per_call(call, times):
    """What each of so many calls leaves behind; the first ones, which fill caches, are not counted."""
    for _ in range(500):
        call()
    before = bytes_in_use()
    for _ in range(times):
        call()
    return (bytes_in_use() - before) / times
