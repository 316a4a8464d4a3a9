#include "hpctl/chaos_links.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/link_fault.h"
#include "hpctl/local_process.h"

/* An agent that was started just now may not have come to it. */
enum { LOOKS = 50, LOOK_MS = 20 };

/* The signal would end a process that does not read it: only who keeps it waiting gets it. */
static bool order_is_taken(pid_t pid)
{
    char file[64], line[256];
    uint64_t blocked = 0;
    snprintf(file, sizeof file, "/proc/%d/status", (int)pid);
    FILE *f = fopen(file, "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "SigBlk: %" SCNx64, &blocked) != 1)
        ;
    if (f)
        fclose(f);
    return blocked >> (LINK_FAULT_SIGNAL - 1) & 1;
}

/* `share` of `whole`, never less. */
static uint32_t whole_of(double share, double whole, uint32_t most)
{
    double n = ceil(share * whole);
    return n < (double)most ? (uint32_t)n : most;
}

int chaos_links_disturb(pid_t pid, const struct chaos_links *how, struct err *e)
{
    struct link_fault fault = {.for_ms = whole_of(how->for_s, 1e3, UINT32_MAX),
                               .delay_ms = whole_of(how->late_s, 1e3, LINK_FAULT_MOST_DELAY_MS),
                               .lost =
                                   whole_of(how->lost, LINK_FAULT_MOST_LOST, LINK_FAULT_MOST_LOST)};
    bool taken = order_is_taken(pid);
    for (int i = 1; !taken && i < LOOKS && kill(pid, 0) == 0; i++) {
        local_pause_ms(LOOK_MS);
        taken = order_is_taken(pid);
    }
    if (!taken) {
        err_set(e, HP_EUNSUPPORTED, "process %d lets nobody disturb its links", (int)pid);
        return err_hint(e, "agents that an older hpctl started do not: `hpctl local down`, then "
                           "`hpctl local up`");
    }
    return sigqueue(pid, LINK_FAULT_SIGNAL, link_fault_value(fault)) == 0
               ? 0
               : err_set(e, HP_EIO, "cannot reach process %d: %s", (int)pid, strerror(errno));
}
