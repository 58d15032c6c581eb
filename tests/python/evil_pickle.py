"""A pickle that makes a folder when somebody unpickles it: a test sees by it that nobody has."""
import os
import pickle


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (os.mkdir, (self.marker,))


def evil_pickle(marker):
    return pickle.dumps(Evil(marker))
