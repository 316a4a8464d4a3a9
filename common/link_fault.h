/* What `hpctl chaos` tells an agent of a local cluster that is to disturb its links: a signal with
 * a value, which carries its own end, so that nothing stays when whoever sent it is killed. Agents
 * without `--chaos-links` take no such signal; none may be sent to them (hpctl/chaos_links.h). */
#ifndef HP_COMMON_LINK_FAULT_H
#define HP_COMMON_LINK_FAULT_H

#include <signal.h>
#include <stdint.h>

#define LINK_FAULT_SIGNAL (SIGRTMIN + 7)

/* What the agent sends to others from now on, for `for_ms`, leaves `delay_ms` later, and no later
 * than at the end of that time; so many of a thousand frames are lost, and sent again. All 0:
 * nothing is disturbed any more. */
struct link_fault {
    uint32_t for_ms, delay_ms, lost;
};
enum {
    LINK_FAULT_MOST_DELAY_MS = (1 << 22) - 1, /* at the end */
    LINK_FAULT_MOST_LOST = 1000,
};

_Static_assert(sizeof(void *) == sizeof(uint64_t), "a signal's value holds a fault");

static inline union sigval link_fault_value(struct link_fault f)
{
    uint64_t how = (uint64_t)f.lost << 22 | (f.delay_ms & LINK_FAULT_MOST_DELAY_MS);
    return (union sigval){.sival_ptr = (void *)(uintptr_t)(how << 32 | f.for_ms)};
}

/* `value` as signalfd_siginfo has it. */
static inline struct link_fault link_fault_of(uint64_t value)
{
    return (struct link_fault){.for_ms = (uint32_t)value,
                               .delay_ms = (uint32_t)(value >> 32) & LINK_FAULT_MOST_DELAY_MS,
                               .lost = (uint32_t)(value >> 54)};
}

#endif
