"""Importing this puts the directories of tests/python on the search path, so that each finds the modules of the others.

conftest.py imports it for the tests. A program that is started directly and needs a module of another directory begins with:

    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import search_path
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = sorted(entry.path for entry in os.scandir(HERE) if entry.is_dir() and entry.name != "__pycache__")
