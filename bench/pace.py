"""How steady the machine is while something is measured: a small piece of work, over and over, by its CPU time.

A virtual machine may be given next to no processor for tens of milliseconds, which its own clocks count as CPU time of whatever runs. Where
that is so for a hundredth of the time or more, a p99 is that of the machine.
"""
import threading
import time

EVERY = 0.005
"""Seconds between two pieces; they and their wake-ups take about a hundredth of a core."""

SLOW = 4
"""Times the median of a run: neither caches nor a slower clock do that."""

PIECE = range(1000)


class Pace:
    """Looks while its block runs."""

    def __enter__(self):
        self.took, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def look(self):
        while not self.ended.wait(EVERY):
            began = time.thread_time_ns()
            sum(PIECE)
            self.took.append(time.thread_time_ns() - began)

    def slow_share(self):
        """The part of the pieces that took much longer than usual."""
        usual = sorted(self.took)[len(self.took) // 2] if self.took else 0
        return round(sum(each > SLOW * usual for each in self.took) / max(1, len(self.took)), 4)
