#include "agent/link_probe.h"

#include <stdlib.h>
#include <string.h>

static struct link_probe_send send_frames(struct link_probe *p, uint32_t count, size_t bytes,
                                          uint64_t now_ns)
{
    struct link_probe_send s = {p->sent, count, bytes};
    p->sent += count;
    p->sent_ns = now_ns;
    return s;
}

struct link_probe_send link_probe_begin(struct link_probe *p, uint64_t now_ns)
{
    *p = (struct link_probe){.begun_ns = now_ns};
    return send_frames(p, 1, 0, now_ns);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t median_round_ns(const struct link_probe *p)
{
    uint64_t sorted[LINK_PROBE_SMALL];
    uint32_t n = p->n_rounds > LINK_PROBE_WARM ? p->n_rounds - LINK_PROBE_WARM : 0;
    if (n == 0)
        return 0;
    memcpy(sorted, p->round_ns + LINK_PROBE_WARM, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_u64);
    return sorted[n / 2];
}

/* Frames that take about LINK_PROBE_FRAME_MS each: on a slow link few bytes do, on a fast one small
 * frames would measure their own overhead. */
static size_t flood_bytes(const struct link_probe *p, uint64_t trial_ns)
{
    uint64_t round = median_round_ns(p), own = trial_ns > round ? trial_ns - round : 1;
    double bytes = (double)LINK_PROBE_TRIAL_BYTES / (double)own * LINK_PROBE_FRAME_MS * 1e6;
    return bytes > LINK_PROBE_MOST_BYTES    ? LINK_PROBE_MOST_BYTES
           : bytes < LINK_PROBE_TRIAL_BYTES ? LINK_PROBE_TRIAL_BYTES
                                            : (size_t)bytes;
}

static struct link_probe_send flood_echo(struct link_probe *p, uint64_t now_ns)
{
    if (p->first_echo_ns == 0)
        p->first_echo_ns = now_ns;
    p->last_echo_ns = now_ns;
    bool more = now_ns - p->flood_ns < LINK_PROBE_FLOOD_MS * UINT64_C(1000000) &&
                p->sent - p->flood_first < LINK_PROBE_FLOOD_FRAMES;
    if (more)
        return send_frames(p, 1, p->bytes, now_ns);
    if (p->echoed == p->sent)
        p->phase = LINK_PROBE_DONE;
    return (struct link_probe_send){0};
}

struct link_probe_send link_probe_echo(struct link_probe *p, uint32_t number, uint64_t now_ns)
{
    if (p->phase == LINK_PROBE_DONE || number >= p->sent || p->echoed >= p->sent)
        return (struct link_probe_send){0};
    p->echoed++;
    switch (p->phase) {
    case LINK_PROBE_LATENCY:
        p->round_ns[p->n_rounds++] = now_ns - p->sent_ns;
        if (p->n_rounds < LINK_PROBE_SMALL)
            return send_frames(p, 1, 0, now_ns);
        p->phase = LINK_PROBE_TRIAL;
        return send_frames(p, 1, LINK_PROBE_TRIAL_BYTES, now_ns);
    case LINK_PROBE_TRIAL:
        p->bytes = flood_bytes(p, now_ns - p->sent_ns);
        p->phase = LINK_PROBE_FLOOD;
        p->flood_ns = now_ns;
        p->flood_first = p->sent;
        return send_frames(p, LINK_PROBE_WINDOW, p->bytes, now_ns);
    case LINK_PROBE_FLOOD: return flood_echo(p, now_ns);
    case LINK_PROBE_DONE: break;
    }
    return (struct link_probe_send){0};
}

double link_probe_latency_s(const struct link_probe *p)
{
    return (double)median_round_ns(p) * 0.5e-9;
}

double link_probe_bandwidth(const struct link_probe *p)
{
    uint32_t frames = p->sent - p->flood_first;
    uint64_t between = p->last_echo_ns - p->first_echo_ns, whole = p->last_echo_ns - p->flood_ns,
             round = median_round_ns(p);
    if (frames < 2 || between == 0)
        return 0;
    /* Echoes that come in one burst, after a stall, tell nothing by their distances: no link brings
     * more than all bytes over the time since the first left. */
    double shown = (double)(frames - 1) * (double)p->bytes / ((double)between * 1e-9);
    double most =
        (double)frames * (double)p->bytes / ((double)(whole > round ? whole - round : 1) * 1e-9);
    return shown < most ? shown : most;
}
