/* What requests to a model took, by the size of their bodies, and from it how long one that comes
 * will take. Sizes within 3 % are one; of a size that was not seen it is the nearest one's time, in
 * proportion for a larger one. Times in nanoseconds of one clock. One thread at a time. */
#ifndef HP_HPCTL_RUN_TIMES_H
#define HP_HPCTL_RUN_TIMES_H

#include <stdbool.h>
#include <stdint.h>

enum { RUN_TIMES_SIZES = 16 };

struct run_times {
    struct run_time {
        uint64_t bytes, at_ns; /* at_ns: when it was measured last */
        uint32_t n;
        double mean_ns, off_ns; /* off_ns: how far times lie from the mean, on average */
    } sizes[RUN_TIMES_SIZES];
    int n;
};

/* The size that was not seen for longest makes room. The first time of a size counts no more than
 * until the second: it has the planning for that size in it. */
void run_times_note(struct run_times *t, uint64_t bytes, uint64_t took_ns, uint64_t now_ns);

struct run_guess {
    uint64_t ns;  /* the mean and twice what times are off it; 0: nothing was measured */
    bool is_sure; /* of this size, of several requests, the last within a second */
};
struct run_guess run_times_guess(const struct run_times *t, uint64_t bytes, uint64_t now_ns);

#endif
