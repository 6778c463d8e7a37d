"""The live effect of speculation: a randomised comparison that goes on after go-live.

    router          a share of the eligible requests, drawn by a hash of the request id and the day, stays on
                    the standard pool (the holdout). Counts, sums and sums of squares by group, class and load
    counters.py     reads these from Prometheus, as increases by time bin
    sequence.py     critical values that hold at every moment, and the mixture for failures
    estimate.py     counters → the ratio speculative/holdout of each figure, with its intervals
    watch.py        what the guard reads: slower, faster or open, over several starts

All but counters.py is pure.
"""
