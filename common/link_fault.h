/* What `hpctl chaos` tells an agent of a local cluster that is to disturb its links: a signal with
 * a value, which carries its own end, so that nothing stays when whoever sent it is killed. Agents
 * without `--chaos-links` take no such signal; none may be sent to them (hpctl/chaos_links.h). */
#ifndef HP_COMMON_LINK_FAULT_H
#define HP_COMMON_LINK_FAULT_H

#include <signal.h>
#include <stdint.h>

#define LINK_FAULT_SIGNAL (SIGRTMIN + 7)

/* What the agent sends to others from now on, for `for_ms`, leaves `delay_ms` later, and no later
 * than at the end of that time. 0 and 0: nothing is late any more. */
struct link_fault {
    uint32_t delay_ms, for_ms;
};

_Static_assert(sizeof(void *) == sizeof(struct link_fault), "a signal's value holds both");

static inline union sigval link_fault_value(struct link_fault f)
{
    return (union sigval){.sival_ptr = (void *)(uintptr_t)((uint64_t)f.delay_ms << 32 | f.for_ms)};
}

/* `value` as signalfd_siginfo has it. */
static inline struct link_fault link_fault_of(uint64_t value)
{
    return (struct link_fault){(uint32_t)(value >> 32), (uint32_t)value};
}

#endif
