/* `hpctl topo`: what there is, as tables, as a file for the planners, as a picture. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/cluster.h"
#include "common/fs.h"
#include "common/json.h"
#include "hpctl/client.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/topo_svg.h"
#include "hpctl/topo_view.h"
#include "hpctl/verbs.h"
#include "hpctl/watched.h"

static int on_measure(void *ctx, const json_t *part, struct err *e)
{
    (void)e;
    struct shown what =
        shown_of("measuring %s to %s", string_member(part, "from"), string_member(part, "to"));
    progress_show(ctx, what.s, 0, 0);
    return 0;
}

static int cluster_of(const struct invocation *in, json_t **out, struct err *e)
{
    const char *file = invocation_option(in, "cluster");
    struct client *client;
    int rc;
    if (file) {
        struct cluster c = {0};
        struct json_at at;
        if ((rc = json_load_at(file, out, &at, e)) < 0)
            return rc;
        rc = cluster_from_json(&at, &c, e);
        cluster_free(&c);
        if (rc < 0) {
            json_decref(*out);
            *out = NULL;
        }
        return rc;
    }
    if ((rc = client_open(invocation_option(in, "context"), &client, e)) < 0)
        return rc;
    struct progress_bar bar;
    progress_init(&bar, in->json);
    bool measure = invocation_flag(in, "measure");
    struct client_ask ask = {.verb = "topo",
                             .arguments = measure ? json_pack("{s:b}", "measure", 1) : NULL,
                             .progress = on_measure,
                             .ctx = &bar};
    rc = client_ask(client, &ask, out, NULL, e);
    progress_end(&bar);
    client_close(&client);
    return rc;
}

static int picture_save(const json_t *cluster, const char *file, struct err *e)
{
    struct buffer svg = {0};
    svg.failed = topo_svg_write(cluster, &svg) < 0 || svg.failed;
    return fs_buffer_save(file, &svg, e);
}

static int topo_show(const void *ctx, const struct invocation *in, struct err *e)
{
    json_t *o = NULL;
    (void)ctx;
    const char *svg = invocation_option(in, "svg");
    int rc = cluster_of(in, &o, e);
    if (rc == 0 && svg)
        rc = picture_save(o, svg, e);
    if (rc == 0 && (in->json || in->output))
        return invocation_print_json(in, o, e);
    if (rc == 0 && !svg)
        rc = topo_view_print(o, e);
    json_decref(o);
    return rc;
}

static int run_topo(struct invocation *in, struct err *e)
{
    return watched_run(in, topo_show, NULL, e);
}

static const struct command_option topo_options[] = {
    {"svg", "FILE", "draw it", 0},
    {"measure", NULL,
     "measure the links between all agents now (those where requests run keep what was measured "
     "before)",
     0},
    {"cluster", "C.json", "show this file instead of the live cluster", 0},
    {"context", "NAME", "of the cluster (default: the current one)", 0},
    WATCH_OPTION,
    {0},
};

const struct command topo_verbs[] = {
    {
        .path = "topo",
        .arguments = "",
        .summary = "show devices, networks and the measured links between agents",
        .details = "-o json or -o FILE gives hp-cluster/1, which the planners read. Links are "
                   "measured a second after an agent joins and every five "
                   "minutes while nothing runs; what was not measured yet is what the network "
                   "cards promise. A result that is four times the last one or a quarter of it is "
                   "measured again before it counts; --measure waits for that, and says where no "
                   "two results agree.",
        .examples = "  hpctl topo\n  hpctl topo --measure\n  hpctl topo -o cluster.json\n  hpctl "
                    "topo --svg cluster.svg\n  hpctl topo --cluster cluster.json --svg cluster.svg",
        .options = topo_options,
        .run = run_topo,
        .makes_file = true,
    },
    {0},
};
