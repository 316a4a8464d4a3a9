"""A test program in Python: functions decorated with @test run in order and speak TAP. skip("why") skips the rest of one."""
import sys
import time
import traceback

_tests = []


class Skip(Exception):
    pass


def skip(reason):
    raise Skip(reason)


def test(function):
    _tests.append(function)
    return function


def main():
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [t for t in _tests if only in t.__name__]
    print(f"1..{len(chosen)}", flush=True)
    failed = 0
    for number, t in enumerate(chosen, 1):
        started = time.monotonic()
        try:
            t()
            print(f"ok {number} - {t.__name__} ({time.monotonic() - started:.1f} s)", flush=True)
        except Skip as reason:
            print(f"ok {number} - {t.__name__} # SKIP {reason}", flush=True)
        except BaseException:
            failed += 1
            print(f"not ok {number} - {t.__name__}", flush=True)
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
    sys.exit(1 if failed else 0)
