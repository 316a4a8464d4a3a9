#include "hpctl/top_figures.h"

#include <string.h>

#include "hpctl/shown.h"
#include "hpctl/table.h"

/* ---- rates ---- */

/* The row of that name; NULL: there is none. */
static const json_t *row_named(const json_t *rows, const char *name)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) if (strcmp(string_member(row, "name"), name) == 0) return row;
    return NULL;
}

static double counter_rate(const json_t *before, const json_t *now, const char *key, double seconds)
{
    double grown = number_member(now, key) - number_member(before, key);
    return before && grown > 0 && seconds > 0 ? grown / seconds : 0;
}

/* ---- deployments ---- */

static json_t *deployment_figures(const json_t *before, const json_t *d, double seconds)
{
    const json_t *pages = json_object_get(d, "prefix_cache");
    double all = number_member(pages, "pages"),
           used = number_member(pages, "pages_own") + number_member(pages, "pages_shared"),
           cached = number_member(pages, "pages_cached");
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "name",
                     string_member(d, "name"), "state", string_member(d, "state"), "tokens_per_s",
                     counter_rate(before, d, "output_tokens", seconds), "prompt_tokens_per_s",
                     counter_rate(before, d, "prompt_tokens", seconds), "active",
                     number_member(d, "sequences_active"), "waiting",
                     number_member(d, "sequences_waiting"), "kv_share", all > 0 ? used / all : 0,
                     "cached_share", all > 0 ? cached / all : 0, "stages",
                     (json_int_t)json_array_size(json_object_get(d, "stages")));
}

/* ---- stages, and the links between them ---- */

/* The look before at the same run of a deployment; NULL: it was wired anew since, and counts from
 * then on. */
static const json_t *run_before(const json_t *before, const json_t *d)
{
    const json_t *was = row_named(before, string_member(d, "name"));
    bool same = was && number_member(was, "generation") == number_member(d, "generation") &&
                number_member(was, "id") == number_member(d, "id");
    return same ? was : NULL;
}

/* Seconds that stage k has computed for since the look before at the same run. */
static double stage_busy_s(const json_t *was, const json_t *d, size_t k)
{
    const json_t *s = json_array_get(json_object_get(d, "stages"), k),
                 *then = json_array_get(json_object_get(was, "stages"), k);
    double grown = number_member(s, "busy_s") - number_member(then, "busy_s");
    return then && grown > 0 ? grown : 0;
}

static struct shown stage_device(const json_t *stage)
{
    return shown_of("%s/%s", string_member(stage, "agent"), string_member(stage, "device"));
}

/* As it was measured; NULL: the two are on one box, or nothing is known. */
static const json_t *link_between(const json_t *links, const json_t *from, const json_t *to)
{
    struct shown ends[] = {stage_device(from), stage_device(to)};
    size_t i;
    json_t *l;
    json_array_foreach(links, i, l)
    {
        if (strcmp(string_member(l, "from"), ends[0].s) == 0 &&
            strcmp(string_member(l, "to"), ends[1].s) == 0)
            return l;
    }
    return NULL;
}

/* The last stage's tokens go to the first one. */
static json_t *stage_figures(const json_t *was, const json_t *d, size_t k, const json_t *links,
                             double seconds)
{
    const json_t *stages = json_object_get(d, "stages"), *s = json_array_get(stages, k);
    size_t n = json_array_size(stages);
    const json_t *next = n > 1 ? json_array_get(stages, (k + 1) % n) : NULL,
                 *link = next ? link_between(links, s, next) : NULL;
    double share = seconds > 0 ? stage_busy_s(was, d, k) / seconds : 0;
    return json_pack(
        "{s:s, s:I, s:s, s:s, s:f, s:f, s:s, s:O*, s:O*, s:O*, s:O*}", "deployment",
        string_member(d, "name"), "stage", (json_int_t)k, "on", string_member(s, "on"), "layers",
        shown_of("%.0f-%.0f", number_member(s, "first_layer"), number_member(s, "last_layer")).s,
        "busy_share", share > 1 ? 1 : share, "sequences", number_member(s, "sequences"), "to",
        next ? string_member(next, "on") : "", "bandwidth_bytes_per_s",
        json_object_get(link, "bandwidth_bytes_per_s"), "latency_s",
        json_object_get(link, "latency_s"), "loss", json_object_get(link, "loss"), "late_s",
        json_object_get(link, "late_s"));
}

static bool stages_add(json_t *all, const json_t *before, const json_t *d, const json_t *links,
                       double seconds)
{
    const json_t *was = run_before(before, d);
    bool good = true;
    for (size_t k = 0; k < json_array_size(json_object_get(d, "stages")); k++)
        good = json_array_append_new(all, stage_figures(was, d, k, links, seconds)) == 0 && good;
    return good;
}

/* ---- agents ---- */

/* Seconds that the agent's stages of all deployments have computed for. */
static double agent_busy_s(const json_t *deployments, const json_t *before, const char *agent)
{
    size_t i, k;
    json_t *d, *s;
    double sum = 0;
    json_array_foreach(deployments, i, d)
    {
        const json_t *was = run_before(before, d);
        json_array_foreach(json_object_get(d, "stages"), k, s)
        {
            if (strcmp(string_member(s, "agent"), agent) == 0)
                sum += stage_busy_s(was, d, k);
        }
    }
    return sum;
}

static void agent_stages(struct buffer *out, const json_t *agent)
{
    size_t i;
    json_t *s;
    json_array_foreach(json_object_get(agent, "stages"), i, s)
        buffer_printf(out, "%s%s %.0f-%.0f", i ? ", " : "", string_member(s, "deployment"),
                      number_member(s, "first_layer"), number_member(s, "last_layer"));
}

static json_t *agent_figures(const json_t *before, const json_t *now, const json_t *a,
                             double seconds)
{
    const char *name = string_member(a, "name");
    const json_t *was = row_named(json_object_get(before, "agents"), name);
    double devices = (double)json_array_size(json_object_get(a, "devices")),
           busy = agent_busy_s(json_object_get(now, "deployments"),
                               json_object_get(before, "deployments"), name);
    double share = seconds > 0 && devices > 0 ? busy / seconds / devices : 0;
    struct buffer stages = {0};
    agent_stages(&stages, a);
    json_t *out =
        json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:s}", "name", name, "state",
                  string_member(a, "state"), "busy_share", share > 1 ? 1 : share, "memory_bytes",
                  number_member(a, "memory_bytes"), "memory_used_bytes",
                  number_member(a, "memory_bytes") - number_member(a, "memory_free_bytes"),
                  "sent_bytes_per_s", counter_rate(was, a, "data_sent_bytes", seconds),
                  "received_bytes_per_s", counter_rate(was, a, "data_received_bytes", seconds),
                  "stages", buffer_cstr(&stages));
    buffer_free(&stages);
    return out;
}

json_t *top_figures(const json_t *before, const json_t *now, double seconds)
{
    json_t *deployments = json_array(), *agents = json_array(), *stages = json_array(), *row;
    const json_t *links = json_object_get(json_object_get(now, "topology"), "links");
    size_t i;
    bool good = deployments && agents && stages;
    json_array_foreach(json_object_get(now, "deployments"), i, row)
    {
        const json_t *was =
            row_named(json_object_get(before, "deployments"), string_member(row, "name"));
        good =
            good && json_array_append_new(deployments, deployment_figures(was, row, seconds)) == 0;
        good =
            good && stages_add(stages, json_object_get(before, "deployments"), row, links, seconds);
    }
    json_array_foreach(json_object_get(now, "agents"), i, row) good =
        good && json_array_append_new(agents, agent_figures(before, now, row, seconds)) == 0;
    if (!good) {
        json_decref(deployments);
        json_decref(agents);
        json_decref(stages);
        return NULL;
    }
    return json_pack("{s:f, s:o, s:o, s:o}", "seconds", seconds, "deployments", deployments,
                     "stages", stages, "agents", agents);
}

/* ---- for people ---- */

enum { BAR = 10 };

/* "[####------]  42 %" */
static void cell_share(struct buffer *cell, const json_t *value)
{
    double share = json_number_value(value);
    int full = (int)(share * BAR + 0.5);
    full = full < 0 ? 0 : full > BAR ? BAR : full;
    buffer_printf(cell, "[%.*s%.*s] %3.0f %%", full, "##########", BAR - full, "----------",
                  100 * share);
}

static void cell_per_s(struct buffer *cell, const json_t *value)
{
    double v = json_number_value(value);
    buffer_printf(cell, v > 0 && v < 10 ? "%.1f" : "%.0f", v);
}

static const struct table_column deployment_columns[] = {
    {"DEPLOYMENT", "name", NULL},
    {"STATE", "state", NULL},
    {">STAGES", "stages", NULL},
    {">TOKENS/S", "tokens_per_s", cell_per_s},
    {">PROMPT/S", "prompt_tokens_per_s", cell_per_s},
    {">RUN", "active", NULL},
    {">WAIT", "waiting", NULL},
    {"KV IN USE", "kv_share", cell_share},
    {"KV KEPT", "cached_share", cell_share},
    {0},
};

static void cell_speed(struct buffer *cell, const json_t *value)
{
    if (json_is_number(value))
        cell_rate(cell, value);
    else
        buffer_printf(cell, "-");
}

/* With what is wrong with the link. */
static void cell_latency(struct buffer *cell, const json_t *stage)
{
    cell_seconds(cell, json_object_get(stage, "latency_s"));
    if (json_object_get(stage, "late_s"))
        buffer_printf(cell, ", %s late", shown_seconds(number_member(stage, "late_s")).s);
    if (json_object_get(stage, "loss"))
        buffer_printf(cell, ", loses %.2g %%", 100 * number_member(stage, "loss"));
}

static const struct table_column stage_columns[] = {
    {"DEPLOYMENT", "deployment", NULL},
    {">STAGE", "stage", NULL},
    {"ON", "on", NULL},
    {"LAYERS", "layers", NULL},
    {"COMPUTES", "busy_share", cell_share},
    {">SEQUENCES", "sequences", NULL},
    {"TO", "to", NULL},
    {">SPEED", "bandwidth_bytes_per_s", cell_speed},
    {"LATENCY", NULL, cell_latency},
    {0},
};

static const struct table_column agent_columns[] = {
    {"AGENT", "name", NULL},
    {"STATE", "state", NULL},
    {"COMPUTES", "busy_share", cell_share},
    {">USED", "memory_used_bytes", cell_bytes},
    {">MEMORY", "memory_bytes", cell_bytes},
    {">SENDS", "sent_bytes_per_s", cell_rate},
    {">RECEIVES", "received_bytes_per_s", cell_rate},
    {"LAYERS", "stages", NULL},
    {0},
};

static int rows_write(const struct table_column *columns, const json_t *rows, const char *empty,
                      struct buffer *out, struct err *e)
{
    struct table *t = table_create(columns);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) table_row(t, row);
    int rc = table_write(t, empty, out, e);
    table_discard(&t);
    return rc;
}

int top_figures_write(const json_t *figures, struct buffer *out, struct err *e)
{
    const json_t *deployments = json_object_get(figures, "deployments"),
                 *stages = json_object_get(figures, "stages"),
                 *agents = json_object_get(figures, "agents");
    double tokens = 0, active = 0, waiting = 0;
    size_t i, ready = 0;
    json_t *row;
    json_array_foreach(deployments, i, row)
    {
        tokens += number_member(row, "tokens_per_s");
        active += number_member(row, "active");
        waiting += number_member(row, "waiting");
    }
    json_array_foreach(agents, i, row) ready += strcmp(string_member(row, "state"), "ready") == 0;
    buffer_printf(out,
                  "%.0f tokens/s, %.0f requests run, %.0f wait; %zu of %zu agents are ready\n\n",
                  tokens, active, waiting, ready, json_array_size(agents));
    int rc = rows_write(deployment_columns, deployments,
                        "nothing is deployed; `hpctl deploy MODEL.gguf` does it", out, e);
    buffer_append(out, "\n", 1);
    if (rc == 0 && json_array_size(stages)) {
        rc = rows_write(stage_columns, stages, "", out, e);
        buffer_append(out, "\n", 1);
    }
    return rc < 0 ? rc
                  : rows_write(agent_columns, agents,
                               "no agents; `hpctl node token create` "
                               "invites one",
                               out, e);
}
