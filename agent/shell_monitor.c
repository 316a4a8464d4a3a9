/* Owns the lock around the core, and what the other threads leave for the loop: messages, the
 * timer, the end. */
#include <string.h>

#include "agent/shell_int.h"

/* ---- one at a time ---- */

void shell_monitor_init(struct agent *a)
{
    pthread_mutex_init(&a->turnstile, NULL);
    pthread_mutex_init(&a->monitor, NULL);
    a->timer_ns = a->armed_ns = UINT64_MAX;
}

void shell_monitor_fini(struct agent *a)
{
    pthread_mutex_destroy(&a->turnstile);
    pthread_mutex_destroy(&a->monitor);
    buffer_free(&a->outbox.bytes);
    buffer_free(&a->leaving.bytes);
}

/* Whoever waits for the monitor holds the turnstile: a thread that leaves and comes again at once
 * (frames without end) comes after it. */
void shell_enter(struct agent *a)
{
    pthread_mutex_lock(&a->turnstile);
    pthread_mutex_lock(&a->monitor);
    pthread_mutex_unlock(&a->turnstile);
}

void shell_leave(struct agent *a)
{
    bool due = a->loop_due;
    a->loop_due = false;
    pthread_mutex_unlock(&a->monitor);
    if (due)
        uv_async_send(&a->wake);
}

bool shell_enter_alive(struct agent *a)
{
    shell_enter(a);
    if (!a->stopping)
        return true;
    pthread_mutex_unlock(&a->monitor);
    return false;
}

void shell_event(struct agent *a, const struct agent_event *ev)
{
    agent_core_event(a->core, ev, &a->actions);
    shell_actions_do(a);
}

/* ---- what is left for the loop ---- */

static void outbox_send(struct agent *a, struct outbox *o)
{
    const uint8_t *at = o->bytes.data;
    for (size_t i = 0; i < o->n; i++) {
        uint32_t head[2]; /* type, length */
        struct err e = {0};
        memcpy(head, at, sizeof head);
        at += sizeof head;
        if (control_send(a->control, 0, at, head[1], &e) < 0 && head[0] != MESSAGE_JOIN &&
            head[0] != MESSAGE_HEARTBEAT)
            log_warn("agent", "message_lost", "type=%s text=\"%s\"",
                     message_type_word((enum message_type)head[0]), e.text);
        at += head[1];
    }
    o->n = o->bytes.size = 0;
    if (o->bytes.capacity > OUTBOX_KEPT_BYTES)
        buffer_free(&o->bytes);
}

static void timer_fired(uv_timer_t *t)
{
    struct agent *a = t->data;
    shell_enter(a);
    a->armed_ns = UINT64_MAX;
    if (a->timer_ns <= env_now_ns(&env_real))
        a->timer_ns = UINT64_MAX;
    shell_event(a, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
    shell_leave(a);
    shell_loop_turn(a);
}

/* A timer that fires too early does no harm: it is set again then. */
static void timer_arm(struct agent *a, uint64_t at_ns)
{
    uint64_t now = env_now_ns(&env_real);
    uv_update_time(a->loop);
    uv_timer_start(&a->timer, timer_fired, at_ns > now ? (at_ns - now + 999999) / 1000000 : 0, 0);
}

void shell_loop_turn(struct agent *a)
{
    if (!shell_enter_alive(a))
        return;
    struct outbox sending = a->outbox;
    uint64_t arm_ns = a->timer_ns < a->armed_ns ? a->timer_ns : UINT64_MAX;
    bool quit = a->quit.code < 0 && !a->quit_said;
    a->outbox = a->leaving;
    a->leaving = sending;
    a->armed_ns = arm_ns < a->armed_ns ? arm_ns : a->armed_ns;
    a->quit_said |= quit;
    a->loop_due = false;
    pthread_mutex_unlock(&a->monitor);
    if (arm_ns != UINT64_MAX)
        timer_arm(a, arm_ns);
    outbox_send(a, &a->leaving);
    if (quit && a->config.quit)
        a->config.quit(a->config.ctx, &a->quit);
}

void shell_loop_event(struct agent *a, const struct agent_event *ev)
{
    shell_enter(a);
    shell_event(a, ev);
    shell_leave(a);
    shell_loop_turn(a);
}
