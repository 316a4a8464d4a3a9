/* A bound on the processor time that one piece of work may take in its thread: what a file's
 * patterns and templates ask for cannot be told beforehand. Other threads' work does not count, so
 * a busy machine refuses nothing. */
#ifndef HP_MODEL_CPU_LIMIT_H
#define HP_MODEL_CPU_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct cpu_limit {
    uint64_t started_ns, limit_ns; /* of the thread's own time */
    uint64_t look_ns; /* of the clock on the wall: no look at the thread's time before */
};

/* `limit_ns` stretches by HP_TIME_SCALE, as sanitizers and valgrind stretch the work. */
void cpu_limit_start(struct cpu_limit *c, uint64_t limit_ns);
/* Allows more. */
void cpu_limit_extend(struct cpu_limit *c, uint64_t more_ns);
/* Takes some nanoseconds as a rule. To be asked by the thread that started the limit. */
bool cpu_limit_passed(struct cpu_limit *c);
/* What the thread has taken since the start; a system call. */
uint64_t cpu_limit_used_ns(const struct cpu_limit *c);

#endif
