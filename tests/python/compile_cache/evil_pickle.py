"""A pickle that creates a directory when it is unpickled, so that a test can check that no code
unpickled it."""
import os
import pickle


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (os.mkdir, (self.marker,))


def evil_pickle(marker):
    return pickle.dumps(Evil(marker))
