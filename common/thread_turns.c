#include "common/thread_turns.h"

#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHORT_NS = 100000 }; /* the least that Linux knows */

/* As sched_setattr(2) has it; not every C library does. */
struct thread_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

void thread_turns_short(void)
{
    struct thread_attributes a = {0};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 || a.policy != SCHED_OTHER)
        return;
    a.runtime_ns = SHORT_NS;
    syscall(SYS_sched_setattr, 0, &a, 0);
}
