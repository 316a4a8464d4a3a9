#include "coordinator/state.h"

#include "common/log.h"

/* A gap that is no more than a busy moment is time that has passed; a longer one is a pause of ours
 * and counts for nobody. */
void coord_woke(struct coord *c)
{
    uint64_t now = coord_clock(c), gap = now - c->woke_ns;
    if (gap > coord_ms(COORD_PAUSE_MS)) {
        log_warn("coordinator", "paused", "seconds=%.1f", (double)gap * 1e-9);
        c->counts.pauses++;
        gap = coord_ms(COORD_TICK_MS);
    }
    c->woke_ns = now;
    c->now_ns += gap;
}

uint64_t coord_unix_s(const struct coord *c)
{
    return c->config.unix_s + (coord_clock(c) - c->started_ns) / 1000000000u;
}

void coord_wall_clock(struct coord *c, uint64_t unix_s)
{
    uint64_t own = coord_unix_s(c);
    if (unix_s > own)
        c->config.unix_s += unix_s - own;
}
