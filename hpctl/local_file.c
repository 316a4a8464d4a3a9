/* local.json: what was started, so that any later call of hpctl can find, restart or end it. */
#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "hpctl/context.h"
#include "hpctl/local_cluster.h"

static json_t *said_json(const struct local_cluster *c)
{
    json_t *said = json_array();
    for (int i = 0; i < c->n_said; i++)
        json_array_append_new(
            said, json_pack("{s:i, s:s}", "agent", c->said[i].agent, "spec", c->said[i].spec));
    return said;
}

int local_save(const struct local_cluster *c, struct err *e)
{
    json_t *agents = json_array();
    for (int i = 0; i < c->n_agents; i++) {
        const struct local_agent *a = &c->agents[i];
        json_t *cores = json_array();
        for (int k = 0; k < a->n_cores; k++)
            json_array_append_new(cores, json_integer(a->cores[k]));
        json_array_append_new(
            agents, json_pack("{s:s, s:i, s:I, s:o, s:I, s:s}", "name", a->name, "pid", (int)a->pid,
                              "started", (json_int_t)a->started, "cores", cores, "memory_bytes",
                              (json_int_t)a->memory_bytes, "as", a->as));
    }
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:s, s:s, s:o}", "format",
                          "hp-local/1", "name", c->name, "dir", c->dir, "http", c->http, "control",
                          c->control, "coordinator_pid", (int)c->coordinator_pid,
                          "coordinator_started", (json_int_t)c->coordinator_started, "pace_cluster",
                          c->pace_cluster, "pace_profile", c->pace_profile, "agents", agents);
    if (o && c->data[0])
        json_object_set_new(o, "data", json_string(c->data));
    if (o && c->grpc[0])
        json_object_set_new(o, "grpc", json_string(c->grpc));
    if (o && c->devices > 1)
        json_object_set_new(o, "devices", json_integer((json_int_t)c->devices));
    if (o && c->n_said)
        json_object_set_new(o, "devices_said", said_json(c));
    if (o && (c->spill_memory_bytes || c->spill_disk_bytes)) {
        json_object_set_new(o, "spill_memory_bytes",
                            json_integer((json_int_t)c->spill_memory_bytes));
        json_object_set_new(o, "spill_disk_bytes", json_integer((json_int_t)c->spill_disk_bytes));
    }
    char file[600];
    snprintf(file, sizeof file, "%s/local.json", c->dir);
    int rc = o ? json_save(o, file, e) : err_no_memory(e, "%s", file);
    json_decref(o);
    return rc;
}

static void copy_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

static int read_agent(const struct json_at *at, struct local_agent *a, struct err *e)
{
    struct json_at cores;
    const char *name, *as;
    uint64_t pid;
    size_t n;
    int rc;
    if ((rc = json_get_string(at, "name", &name, e)) < 0 ||
        (rc = json_get_u64(at, "pid", &pid, e)) < 0 ||
        (rc = json_get_u64(at, "started", &a->started, e)) < 0 ||
        (rc = json_get_u64(at, "memory_bytes", &a->memory_bytes, e)) < 0 ||
        (rc = json_opt_string(at, "as", "", &as, e)) < 0 ||
        (rc = json_get(at, "cores", &cores, e)) < 0 || (rc = json_as_array(&cores, &n, e)) < 0)
        return rc;
    copy_text(a->name, sizeof a->name, name);
    copy_text(a->as, sizeof a->as, as);
    a->pid = (pid_t)pid;
    for (size_t i = 0; i < n && i < LOCAL_MAX_CORES; i++) {
        struct json_at item = json_item(&cores, i);
        uint64_t core;
        if ((rc = json_as_u64(&item, &core, e)) < 0)
            return rc;
        a->cores[a->n_cores++] = (int)core;
    }
    return 0;
}

static int read_device(const struct json_at *at, const struct local_cluster *c,
                       struct local_device *out, struct err *e)
{
    uint64_t agent;
    const char *spec;
    int rc = json_get_u64(at, "agent", &agent, e);
    rc = rc < 0 ? rc : json_get_string(at, "spec", &spec, e);
    if (rc == 0 && (agent >= (uint64_t)c->n_agents || strlen(spec) >= sizeof out->spec))
        rc = json_fail(at, e, "a device of no agent, or too long a text");
    if (rc < 0)
        return rc;
    out->agent = (int)agent;
    copy_text(out->spec, sizeof out->spec, spec);
    return 0;
}

static int read_devices(const struct json_at *at, struct local_cluster *c, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc;
    if (!json_object_get(at->value, "devices_said"))
        return 0;
    if ((rc = json_get(at, "devices_said", &list, e)) < 0 || (rc = json_as_array(&list, &n, e)) < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < n && i < LOCAL_MAX_SAID; i++) {
        struct json_at item = json_item(&list, i);
        rc = read_device(&item, c, &c->said[c->n_said++], e);
    }
    return rc;
}

static int read_local(const struct json_at *at, struct local_cluster *c, struct err *e)
{
    static const struct {
        const char *key;
        size_t offset, size;
    } texts[] = {
        {"name", offsetof(struct local_cluster, name), sizeof c->name},
        {"dir", offsetof(struct local_cluster, dir), sizeof c->dir},
        {"http", offsetof(struct local_cluster, http), sizeof c->http},
        {"control", offsetof(struct local_cluster, control), sizeof c->control},
        {"pace_cluster", offsetof(struct local_cluster, pace_cluster), sizeof c->pace_cluster},
        {"pace_profile", offsetof(struct local_cluster, pace_profile), sizeof c->pace_profile},
    };
    struct json_at agents;
    uint64_t pid;
    size_t n;
    const char *data, *grpc;
    int rc = json_expect_format(at, "hp-local/1", e);
    if (rc == 0 && (rc = json_opt_string(at, "grpc", "", &grpc, e)) == 0)
        copy_text(c->grpc, sizeof c->grpc, grpc);
    if (rc == 0 && (rc = json_opt_string(at, "data", "", &data, e)) == 0)
        copy_text(c->data, sizeof c->data, data);
    rc = rc < 0 ? rc : json_opt_u64(at, "devices", 0, &c->devices, e);
    rc = rc < 0 ? rc : json_opt_u64(at, "spill_memory_bytes", 0, &c->spill_memory_bytes, e);
    rc = rc < 0 ? rc : json_opt_u64(at, "spill_disk_bytes", 0, &c->spill_disk_bytes, e);
    if (rc == 0 && c->devices > LOCAL_MAX_DEVICES)
        rc = json_fail(at, e, "%d devices are the most that an agent has", LOCAL_MAX_DEVICES);
    for (size_t i = 0; rc == 0 && i < sizeof texts / sizeof *texts; i++) {
        const char *text;
        if ((rc = json_get_string(at, texts[i].key, &text, e)) == 0)
            copy_text((char *)c + texts[i].offset, texts[i].size, text);
    }
    if (rc < 0 || (rc = json_get_u64(at, "coordinator_pid", &pid, e)) < 0 ||
        (rc = json_get_u64(at, "coordinator_started", &c->coordinator_started, e)) < 0 ||
        (rc = json_get(at, "agents", &agents, e)) < 0 || (rc = json_as_array(&agents, &n, e)) < 0)
        return rc;
    c->coordinator_pid = (pid_t)pid;
    for (size_t i = 0; i < n && i < LOCAL_MAX_AGENTS && rc == 0; i++) {
        struct json_at item = json_item(&agents, i);
        rc = read_agent(&item, &c->agents[c->n_agents++], e);
    }
    return rc < 0 ? rc : read_devices(at, c, e);
}

static int local_missing(const char *name, struct err *e)
{
    char near[sizeof((struct context *)0)->name];
    err_set(e, HP_ENOENT, "there is no local cluster \"%s\"", name);
    return context_nearest(name, near, sizeof near)
               ? err_hint(e, "did you mean \"%s\"? `hpctl local ls` lists them", near)
               : err_hint(e, "`hpctl local ls` lists them");
}

int local_load(const char *name, struct local_cluster *out, struct err *e)
{
    struct context context;
    char file[600];
    json_t *root;
    struct json_at at;
    int rc = context_load(name, &context, e);
    if (rc < 0)
        return rc == HP_ENOCLUSTER && name ? local_missing(name, e) : rc;
    if (!context.local_dir[0])
        return err_set(e, HP_ENOENT, "the cluster \"%s\" was not made by `hpctl local up`",
                       context.name);
    snprintf(file, sizeof file, "%s/local.json", context.local_dir);
    if ((rc = json_load_at(file, &root, &at, e)) < 0)
        return rc;
    *out = (struct local_cluster){0};
    rc = read_local(&at, out, e);
    json_decref(root);
    return rc;
}
