#include "hpctl/own_devices.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/discover_devices.h"
#include "hpctl/gpu_look.h"
#include "hpctl/shown.h"
#include "model/model.h"

enum { CONTEXT_USUAL = 4096, PART_LEAST = 8 /* of the model, that a GPU should hold: 1/8 */ };

/* GPUs from the first on, and whether the CPU is to stand beside them. */
struct gpu_choice {
    int n_gpus;
    bool cpu_too;
    uint64_t model_bytes, gpu_bytes; /* what it takes, what they have for it */
    char name[PLUGIN_NAME];          /* of the first */
};

/* Weights as the file has them, an eighth for how a device keeps them and what it computes in, and
 * keys and values of one usual sequence, or of what is asked for. */
static uint64_t model_bytes(const struct model *m, const struct own_devices_ask *ask)
{
    const struct graph *g = model_graph(m);
    int n, trained = model_config(m)->context;
    const struct weight *weights = model_weights(m, &n);
    double bytes = 0, token = 0;
    uint64_t usual = trained > 0 && trained < CONTEXT_USUAL ? (uint64_t)trained : CONTEXT_USUAL,
             tokens = ask->max_context ? ask->max_context : usual,
             sequences = ask->max_sequences ? ask->max_sequences : 1;
    for (int i = 0; i < n; i++)
        bytes += (double)weight_dtype_bytes(&weights[i]);
    for (int i = 0; i < g->n_layers; i++)
        token += (double)g->layers[i].state_bytes_per_token;
    bytes += bytes / 8 + token * (double)tokens * (double)sequences;
    return bytes < 1e18 ? (uint64_t)bytes : (uint64_t)1e18;
}

static int model_runs(const struct model *m, const struct backend *b, struct err *e)
{
    const struct graph *g = model_graph(m);
    int rc = 0;
    for (int i = 0; rc == 0 && i < g->n_ops; i++)
        rc = backend_require(b, &g->ops[i], e);
    return rc;
}

/* As many as it takes; a look at each opens it. */
static void gpus_count(const struct gpu_look *look, struct gpu_choice *c)
{
    const struct device_part whole = {0};
    struct plugin_facts facts = look->facts;
    do {
        c->gpu_bytes += facts.free_bytes / 10 * 9; /* as gpu_specs_find gives it */
        c->n_gpus++;
    } while (c->gpu_bytes < c->model_bytes && c->n_gpus < DISCOVER_MAX_DEVICES - 1 &&
             look->plugin->facts(c->n_gpus, &whole, &facts, NULL) == 0);
    c->cpu_too = c->gpu_bytes < c->model_bytes;
}

/* HP_EDEVICE, HP_EUNSUPPORTED say why no GPU; HP_ENOENT: that is no matter of GPUs. */
static int gpu_choose(const struct own_devices_ask *ask, struct gpu_choice *c, struct err *e)
{
    struct gpu_look look;
    struct model *m = NULL;
    gpu_look(&look);
    if (look.state == GPU_NONE)
        return HP_ENOENT;
    if (look.state == GPU_UNUSABLE) {
        *e = look.why;
        return look.card[0] ? err_at(e, "%s", look.card) : look.why.code;
    }
    if (model_open(ask->path, &m, NULL) < 0)
        return HP_ENOENT; /* as whoever deploys it says */
    c->model_bytes = model_bytes(m, ask);
    snprintf(c->name, sizeof c->name, "%s", look.facts.name);
    int rc = model_runs(m, look.plugin->backend, e);
    model_close(&m);
    if (rc < 0)
        return err_at(e, "cuda:0, %s", c->name);
    gpus_count(&look, c);
    if (c->gpu_bytes >= c->model_bytes / PART_LEAST)
        return 0;
    return err_set(e, HP_EDEVICE, "cuda:0, %s, has %s free for it, and the model takes %s", c->name,
                   shown_bytes((double)c->gpu_bytes).s, shown_bytes((double)c->model_bytes).s);
}

static void choice_say(const struct gpu_choice *c, struct own_devices *out)
{
    struct shown gpus = c->n_gpus > 1 ? shown_of("cuda:0 to cuda:%d", c->n_gpus - 1)
                                      : shown_of("cuda:0, %s", c->name);
    int n = snprintf(out->said, sizeof out->said, "computes on %s", gpus.s);
    if (c->cpu_too)
        snprintf(out->said + n, sizeof out->said - (size_t)n,
                 ", and on the CPU: the model takes %s, of which %s have room there",
                 shown_bytes((double)c->model_bytes).s, shown_bytes((double)c->gpu_bytes).s);
}

int own_devices_cpu(const struct err *why, struct own_devices *out, struct err *e)
{
    out->chosen = false;
    snprintf(out->said, sizeof out->said, "computes on the CPU: %.600s", why->text);
    return discover_share(NULL, 0, 0, &out->share, e);
}

static int chosen_take(const struct gpu_choice *c, struct discover_share *out, struct err *e)
{
    char texts[DISCOVER_MAX_DEVICES][16] = {""};
    const char *specs[DISCOVER_MAX_DEVICES];
    int n = 0;
    for (; n < c->n_gpus; n++) {
        snprintf(texts[n], sizeof texts[n], "cuda:%d", n);
        specs[n] = texts[n];
    }
    if (c->cpu_too)
        specs[n++] = "cpu";
    return discover_devices(specs, n, out, e);
}

static int devices_choose(const struct own_devices_ask *ask, struct own_devices *out, struct err *e)
{
    struct gpu_choice c = {0};
    struct err why = {0};
    int rc = gpu_choose(ask, &c, &why);
    if (rc == HP_ENOENT)
        return 0;
    rc = rc < 0 ? rc : chosen_take(&c, &out->share, &why);
    if (rc < 0)
        return own_devices_cpu(&why, out, e);
    out->chosen = true;
    choice_say(&c, out);
    return 0;
}

int own_devices_find(const struct own_devices_ask *ask, struct own_devices *out, struct err *e)
{
    sigset_t all, before;
    *out = (struct own_devices){0};
    int rc = discover_share(NULL, 0, 0, &out->share, e);
    if (rc < 0)
        return rc;
    /* The driver's threads take the mask of who starts them: signals are for the caller's. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = ask->n_devices ? discover_devices(ask->devices, ask->n_devices, &out->share, e)
                        : devices_choose(ask, out, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
