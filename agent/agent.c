/* Owns the agent's life: its parts, its handles, and what comes to its loop. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/backend/backend.h"
#include "agent/profiler.h"
#include "agent/shell_int.h"
#include "common/host.h"
#include "transport/data_late.h"

static void welcome_in(struct agent *a, const struct message_welcome *m);

static void on_message(void *ctx, uint64_t peer, const char *key, const uint8_t *bytes, size_t size)
{
    struct agent *a = ctx;
    struct message_ref *m;
    struct err e = {0};
    (void)peer;
    (void)key; /* the handshake has proven that it is the coordinator's */
    int rc = message_ref_decode(bytes, size, &m, &e);
    if (rc < 0) {
        log_warn("agent", "message_refused", "code=%s text=\"%s\"", status_word(rc), e.text);
        return;
    }
    if (m->message.type == MESSAGE_WELCOME)
        welcome_in(a, &m->message.u.welcome);
    shell_loop_event(a, &(struct agent_event){.kind = AGENT_EVENT_MESSAGE, .u.message = m});
    message_ref_release(m);
}

/* An agent that nobody answers says so after five seconds, and again every half minute. */
static void absence_tell(struct agent *a)
{
    uint64_t now = env_now_ns(&env_real);
    shell_enter(a);
    bool joined = agent_core_view(a->core).joined;
    shell_leave(a);
    if (joined) {
        a->absent_ns = 0;
        return;
    }
    if (!a->absent_ns)
        a->absent_ns = a->absence_told_ns = now + ABSENCE_FIRST_NS - ABSENCE_AGAIN_NS;
    if (now < a->absence_told_ns + ABSENCE_AGAIN_NS)
        return;
    a->absence_told_ns = now;
    if (control_contact(a->control) == CONTROL_UNPROVEN) {
        log_error("agent", "coordinator_unproven",
                  "address=%s text=\"what listens there does not prove itself with the key in "
                  "%s/coordinator.key: is it another cluster, or is that file damaged? A new join "
                  "token of the cluster (--token-file) replaces the key\"",
                  a->config.coordinator, a->config.dir);
        return;
    }
    log_warn("agent", "coordinator_silent",
             "address=%s text=\"no answer: does hp-coordinator run there, does it listen beyond "
             "loopback, and may this box open that port?\"",
             a->config.coordinator);
}

/* What shares have done, before the figures of the whole. */
static void shares_meter(struct agent *a)
{
    struct agent_event ev = {.kind = AGENT_EVENT_SHARE_METER};
    shell_enter(a);
    shell_shares_reap(a);
    for (size_t i = 0; i < a->n_stages; i++) {
        if (!a->stages[i].runner)
            continue;
        struct share_runner_view v = share_runner_view(a->stages[i].runner);
        ev.u.share_meter.slot = a->stages[i].slot;
        ev.u.share_meter.queued = v.queued;
        ev.u.share_meter.done = v.done;
        ev.u.share_meter.running = v.running;
        ev.u.share_meter.busy_s = v.busy_s;
        ev.u.share_meter.planned_s = v.planned_s;
        shell_event(a, &ev);
    }
    shell_leave(a);
}

static void on_meter(uv_timer_t *t)
{
    struct agent *a = t->data;
    absence_tell(a);
    struct data_stats stats;
    struct data_loss losses[MESSAGE_MAX_LOSSES];
    data_stats(a->data, &stats);
    struct agent_event ev = {.kind = AGENT_EVENT_METER};
    shell_devices_meter(a, &ev);
    ev.u.meter.dropped_foreign = stats.dropped_foreign + stats.dropped_malformed;
    ev.u.meter.data_sent_bytes = stats.bytes_sent;
    ev.u.meter.data_received_bytes = stats.bytes_received;
    ev.u.meter.dropped_stale = a->batches_stale;
    ev.u.meter.losses = losses;
    ev.u.meter.n_losses = data_losses(a->data, losses, MESSAGE_MAX_LOSSES);
    shares_meter(a);
    shell_loop_event(a, &ev);
    link_probe_io_tick(a->probes);
}

/* ---- its life ---- */

static void free_agent(struct agent *a)
{
    pthread_mutex_destroy(&a->gate);
    event_queue_fini(&a->events);
    shell_monitor_fini(a);
    buffer_free(&a->node_json);
    agent_actions_free(&a->actions);
    free(a->stages);
    free(a->profiles);
    free(a->runs);
    free(a->tokens);
    log_ring_destroy(&a->log);
    free(a);
}

static void on_closed(uv_handle_t *h)
{
    struct agent *a = h->data;
    if (--a->open_handles == 0)
        free_agent(a);
}

static void release_buffer(void *ctx, void *buffer)
{
    struct agent *a = ctx;
    data_buffer_release(a->data, buffer);
}

/* Threads end before what they use: the executor and the store post frames; the data channel calls
 * back until it is closed, but for nothing (gate). */
static void parts_stop(struct agent *a)
{
    if (a->control)
        control_close(&a->control);
    spill_store_stop(a->spills);
    shell_shares_close(a);
    shell_devices_close(a);
    spill_store_close(&a->spills);
    shell_kv_links_close(a);
    while (a->n_stages)
        shell_stage_drop(a, a->stages[0].slot);
    delay_line_destroy(&a->line);
    if (a->core)
        agent_core_destroy(&a->core, release_buffer, a);
    store_worker_destroy(&a->store);
    link_probe_io_destroy(&a->probes);
    shell_events_fini(a);
    if (a->data)
        data_close(&a->data);
    shell_devices_free(a);
    paced_close(&a->paced);
}

void agent_stop(struct agent **pa)
{
    struct agent *a = *pa;
    if (!a)
        return;
    *pa = NULL;
    pthread_mutex_lock(&a->gate);
    shell_enter(a);
    a->stopping = true;
    shell_leave(a);
    pthread_mutex_unlock(&a->gate);
    log_set_sink(NULL, NULL);
    parts_stop(a);
    uv_handle_t *handles[] = {(uv_handle_t *)&a->wake, (uv_handle_t *)&a->timer,
                              (uv_handle_t *)&a->meter};
    if (!a->open_handles)
        free_agent(a);
    else
        for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
            uv_close(handles[i], on_closed);
}

static int folders_make(struct agent *a, struct err *e)
{
    const char *dir = a->config.dir;
    if (strlen(dir) > 1000)
        return err_set(e, HP_EINVAL, "%s: the path is too long", dir);
    snprintf(a->store_folder, sizeof a->store_folder, "%s/store", dir);
    int n =
        a->config.measured_dir
            ? snprintf(a->profile_folder, sizeof a->profile_folder, "%s", a->config.measured_dir)
            : snprintf(a->profile_folder, sizeof a->profile_folder, "%s/profiles", dir);
    if (n < 0 || (size_t)n >= sizeof a->profile_folder)
        return err_set(e, HP_EINVAL, "%s: the path is too long", a->config.measured_dir);
    snprintf(a->key_file, sizeof a->key_file, "%s/agent.key", dir);
    if (mkdir(dir, 0700) != 0 && access(dir, W_OK) != 0)
        return err_set(e, HP_EIO, "%s: cannot make or write this folder", dir);
    return key_pair_load_or_create(a->key_file, &a->keys, e);
}

static int data_start(struct agent *a, struct err *e)
{
    char interface[64];
    struct data_config c = {.network = a->config.network,
                            .port = a->config.data_port,
                            .keys = a->keys,
                            .pool_limit_bytes = shell_pool_least_bytes(a),
                            .device = shell_devices_memory(a),
                            .callbacks = {a, shell_on_frame, shell_on_link_down}};
    if (a->config.hub)
        return data_open_inproc(&c, &a->data, e);
    int rc = data_host_find(a->config.network, a->config.coordinator, a->data_host, e);
    if (rc < 0)
        return rc;
    c.host = a->data_host;
    if (!c.network && data_interface_find(a->data_host, interface, sizeof interface))
        c.network = interface;
    a->data_kind = data_policy_kind(&a->config.data, a->data_host);
    rc = data_open_kind(a->data_kind, &c, &a->data, e);
    return rc == 0 && a->config.chaos_links ? data_late_open(a->data, e) : rc;
}

void agent_links_disturb(struct agent *a, struct link_fault fault)
{
    const struct data_lateness how = {.delay_ns = fault.delay_ms * UINT64_C(1000000),
                                      .for_ns = fault.for_ms * UINT64_C(1000000),
                                      .lost = (double)fault.lost / LINK_FAULT_MOST_LOST};
    struct err e = {0};
    if (data_late_set(a->data, &how, &e) < 0)
        log_warn("agent", "links_not_late", "text=\"%s\"", e.text);
}

/* Where others must be able to reach this agent: what a firewall has to let in. */
static void data_tell(const struct agent *a)
{
    struct data_address at;
    size_t size;
    const uint8_t *bytes = data_address(a->data, &size);
    if (data_address_parse(bytes, size, &at, NULL) == 0)
        log_info("agent", "data", "kind=%s host=%s port=%u", data_kind_word(at.kind), at.host,
                 (unsigned)at.port);
}

/* The coordinator says with its welcome which data channel the cluster wants. */
static void welcome_in(struct agent *a, const struct message_welcome *m)
{
    struct data_policy wanted;
    struct err e = {0};
    if (a->config.hub || !a->config.data_wanted)
        return;
    if (data_policy_set(&wanted, m->data, m->trust, &e) < 0) {
        log_warn("agent", "data_policy_refused", "text=\"%s\"", e.text);
        return;
    }
    bool reopen = data_policy_kind(&wanted, a->data_host) != a->data_kind;
    if (reopen || !data_policy_equal(&wanted, &a->config.data))
        a->config.data_wanted(a->config.ctx, &wanted, reopen);
    a->config.data = wanted;
}

enum { RUNS_MAX = OP_KIND_COUNT + DTYPE_WEIGHT_COUNT };

static bool name_is_among(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* What all of its devices run: names[RUNS_MAX]. Returns how many. */
static int runs_common(const struct agent *a, const char **names)
{
    const char *own[RUNS_MAX];
    int n = 0;
    for (unsigned d = 0; d < a->n_devices; d++) {
        const struct device_config device = {
            .backend = "cpu",
            .of = discover_device_at(&a->config.share, (int)d).backend,
            .kernels = a->config.kernels};
        int n_own = backend_runs(&device, own, RUNS_MAX), kept = 0;
        for (int i = 0; i < (d ? n : n_own); i++)
            if (d == 0 || name_is_among(names[i], own, n_own))
                names[kept++] = d ? names[i] : own[i];
        n = kept;
    }
    return n;
}

/* Adds "runs", the kinds of operators and the number formats that its devices compute with,
 * "kernels", what computes them and why, and "kv_spill", how much it spills of KV cache. */
static int runs_add(struct agent *a, struct err *e)
{
    const char *names[RUNS_MAX];
    int n = runs_common(a, names);
    json_t *node = json_loads(buffer_cstr(&a->node_json), 0, NULL), *runs = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(runs, json_string(names[i]));
    json_object_set_new(node, "runs", runs);
    json_t *choices = executor_choices(a->executors[0]);
    shell_devices_say(a, choices);
    json_object_set_new(node, "kernels", choices);
    if (a->spills)
        json_object_set_new(node, "kv_spill",
                            json_pack("{s:I, s:I}", "memory_bytes",
                                      (json_int_t)a->config.spill_memory_bytes, "disk_bytes",
                                      (json_int_t)a->config.spill_disk_bytes));
    char *text = json_dumps(node, JSON_COMPACT);
    json_decref(node);
    buffer_free(&a->node_json);
    if (text)
        buffer_append(&a->node_json, text, strlen(text));
    bool good = text && !a->node_json.failed;
    free(text);
    return good ? 0 : err_set(e, HP_ENOMEM, "no memory to describe this node");
}

/* What it says it has: itself, or the device that it stands for. */
static int node_describe(struct agent *a, struct err *e)
{
    const char *name = a->config.name[0] ? a->config.name : "node";
    int rc = 0;
    if (!a->paced)
        rc = discover_node(name, &a->config.share, a->config.network, &a->node_json, a->kinds, e);
    else {
        snprintf(a->kinds[0], sizeof a->kinds[0], "%s", paced_kind(a->paced));
        rc = paced_node(a->paced, name, &a->node_json, e);
    }
    return rc < 0 ? rc : runs_add(a, e);
}

static int spills_open(struct agent *a, struct err *e)
{
    char folder[1100];
    snprintf(folder, sizeof folder, "%s/spilled", a->config.dir);
    struct spill_store_config c = {.folder = folder,
                                   .memory_bytes = a->config.spill_memory_bytes,
                                   .disk_bytes = a->config.spill_disk_bytes,
                                   .transit_bytes = a->config.spill_transit_bytes,
                                   .told = shell_on_spills,
                                   .found = shell_on_spill_found,
                                   .ctx = a};
    return spill_store_open(&c, &a->spills, e);
}

static int parts_start(struct agent *a, struct err *e)
{
    struct store_worker_config s = {.folder = a->store_folder,
                                    .machine = a->machine,
                                    .limit_bytes = a->config.store_limit_bytes,
                                    .borrows = a->config.store_borrows,
                                    .report = shell_on_store,
                                    .ctx = a};
    int rc = data_start(a, e);
    s.data = a->data;
    if (rc == 0 && a->config.pace_as)
        rc = paced_open(a->config.pace_cluster, a->config.pace_profile, a->config.pace_as,
                        &a->paced, e);
    if (rc == 0 && a->paced)
        rc = delay_line_create(a->data, &a->line, e);
    rc = rc < 0 ? rc : link_probe_io_create(a->data, shell_on_probed, a, &a->probes, e);
    rc = rc < 0 ? rc : store_worker_create(&s, &a->store, e);
    if (rc == 0 && (a->config.spill_memory_bytes || a->config.spill_disk_bytes))
        rc = spills_open(a, e);
    rc = rc < 0 ? rc : shell_devices_open(a, e);
    rc = rc < 0 ? rc : node_describe(a, e);
    if (rc < 0)
        return rc;
    size_t address_size;
    const uint8_t *address = data_address(a->data, &address_size);
    a->core_config = (struct agent_core_config){
        .name = a->config.name,
        .secret = a->config.secret,
        .program = HP_VERSION,
        .process = a->config.process ? a->config.process : env_random_u64(&env_real),
        .machine = a->machine,
        .hostname = a->hostname,
        .node_json = buffer_cstr(&a->node_json),
        .data_address = {address, address_size},
        .n_devices = a->n_devices,
        .spills = a->spills != NULL,
        .runs_ahead = 2,
        .time_scale = env_time_scale()};
    return agent_core_create(&env_real, &a->core_config, &a->core, e);
}

static int control_start(struct agent *a, struct err *e)
{
    struct control_callbacks cb = {.ctx = a, .message = on_message};
    const struct agent_config *c = &a->config;
    return c->hub ? control_connect_inproc(c->hub, a->loop, c->coordinator, c->server_key, &a->keys,
                                           &cb, &a->control, e)
                  : control_connect_zmq(a->loop, c->coordinator, c->server_key, &a->keys, &cb,
                                        &a->control, e);
}

static int handles_start(struct agent *a, struct err *e)
{
    a->wake.data = a->timer.data = a->meter.data = a;
    if (uv_async_init(a->loop, &a->wake, shell_woken) != 0)
        return err_set(e, HP_ENOMEM, "cannot make the agent's handles");
    uv_timer_init(a->loop, &a->timer);
    uv_timer_init(a->loop, &a->meter);
    a->open_handles = 3;
    return 0;
}

int agent_start(uv_loop_t *loop, const struct agent_config *c, struct agent **out, struct err *e)
{
    struct agent *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(e, HP_ENOMEM, "no memory for an agent");
    a->config = *c;
    a->loop = loop;
    a->box_free_bytes = UINT64_MAX;
    pthread_mutex_init(&a->gate, NULL);
    shell_monitor_init(a);
    shell_events_init(a);
    host_id(a->machine);
    if (gethostname(a->hostname, sizeof a->hostname - 1) != 0)
        snprintf(a->hostname, sizeof a->hostname, "unknown");
    a->runs = malloc(FRAME_MAX_RUNS * sizeof *a->runs);
    a->tokens = malloc(FRAME_MAX_RUNS * sizeof *a->tokens);
    a->log = log_ring_create();
    int rc = !a->runs || !a->tokens || !a->log || !a->events.places[QUEUED_LINK]
                 ? err_set(e, HP_ENOMEM, "no memory for an agent")
                 : handles_start(a, e);
    rc = rc < 0 ? rc : folders_make(a, e);
    rc = rc < 0 ? rc : parts_start(a, e);
    rc = rc < 0 ? rc : control_start(a, e);
    if (rc < 0) {
        agent_stop(&a);
        return rc;
    }
    log_set_sink(log_ring_add, a->log);
    if (!a->config.hub)
        data_tell(a);
    log_info("agent", "start", "version=%s devices=%u memory_bytes=%llu coordinator=%s", HP_VERSION,
             a->n_devices, (unsigned long long)c->share.memory_bytes, c->coordinator);
    for (unsigned i = 0; i < a->n_devices; i++)
        log_info("agent", "device", "name=%s describe=\"%s\" kind=%s memory_bytes=%llu",
                 discover_device_at(&c->share, (int)i).name, executor_describe(a->executors[i]),
                 a->kinds[i],
                 (unsigned long long)discover_device_at(&c->share, (int)i).memory_bytes);
    uv_timer_start(&a->meter, on_meter, 0, 1000);
    shell_loop_event(a, &(struct agent_event){.kind = AGENT_EVENT_START});
    *out = a;
    return 0;
}
