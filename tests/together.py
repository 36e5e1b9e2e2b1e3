"""Functions that run in threads at the same time."""

import sys
import threading


def together(*acts):
    """Run all at the same time, in threads that take turns often; raise the first error."""
    errors = []

    def guarded(act):
        try:
            act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(act,)) for act in acts]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]
