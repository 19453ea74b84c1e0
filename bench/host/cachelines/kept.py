# SPDX-License-Identifier: GPL-2.0
"""What takes seconds to read from a large file, and is kept beside the results of earlier runs."""

import os
import pickle

# To be raised when what is kept changes.
FORMAT = 4


def kept(path, sources, make):
    """Return what make() returned when it was last called after the sources had changed."""
    try:
        if all(os.path.getmtime(path) > os.path.getmtime(source) for source in sources):
            with open(path, "rb") as file:
                version, value = pickle.load(file)
            if version == FORMAT:
                return value
    except (OSError, ValueError, TypeError, EOFError, AttributeError, pickle.UnpicklingError):
        pass
    value = make()
    # Several processes may do this at once.
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "wb") as file:
        pickle.dump((FORMAT, value), file)
    os.replace(temporary, path)
    return value
