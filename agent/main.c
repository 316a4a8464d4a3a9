/* hp-agent: the program. */
#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/chaos_orders.h"
#include "agent/options.h"
#include "common/descriptors.h"
#include "common/env.h"
#include "common/fs.h"
#include "common/heap.h"
#include "common/host_address.h"
#include "common/log.h"

static int network_check(const char *network, struct err *e)
{
    char list[200] = "";
    if (!network || if_nametoindex(network) != 0)
        return 0;
    struct if_nameindex *all = if_nameindex();
    for (const struct if_nameindex *i = all; i && i->if_index; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", i->if_name);
    }
    if (all)
        if_freenameindex(all);
    return err_set(e, HP_EUSAGE, "--network %s: this box has no such interface; it has %s", network,
                   list);
}

/* ---- the token, and the coordinator's key ---- */

static int line_read(const char *file, char *out, size_t size, struct err *e)
{
    FILE *f = fopen(file, "re");
    if (!f)
        return err_set(e, errno == ENOENT ? HP_ENOENT : HP_EIO, "%s: %s", file, strerror(errno));
    bool got = fgets(out, (int)size, f) != NULL;
    fclose(f);
    if (!got)
        return err_set(e, HP_EPARSE, "%s: is empty", file);
    out[strcspn(out, " \r\n")] = '\0';
    return 0;
}

static void key_keep(const char *file, const char *key)
{
    struct err e = {0};
    char line[KEY_TEXT + 2];
    int n = snprintf(line, sizeof line, "%s\n", key);
    if (fs_file_write(file, line, (size_t)n, 0600, &e) < 0)
        log_warn("agent", "key_not_kept", "text=\"%s\"", e.text);
}

/* Whom to trust, and what proves that this agent was invited. Without a token it is the coordinator
 * that the last token named. */
static int trust_find(const struct agent_options *o, const char *dir, struct join_token *out,
                      struct err *e)
{
    char text[2 * JOIN_TOKEN_TEXT] = "", file[PATH_MAX];
    const char *environment = getenv("HP_JOIN_TOKEN");
    int rc = 0;
    if (o->token)
        snprintf(text, sizeof text, "%s", o->token);
    else if (o->token_file)
        rc = line_read(o->token_file, text, sizeof text, e);
    else if (environment)
        snprintf(text, sizeof text, "%s", environment);
    snprintf(file, sizeof file, "%s/coordinator.key", dir);
    /* A service names the file for ever, and its owner removes what is not needed again. */
    bool joined = rc == HP_ENOENT && access(file, F_OK) == 0;
    if (rc < 0 && !joined)
        return rc;
    if (text[0]) {
        rc = join_token_parse(text, out, e);
        if (rc == 0)
            key_keep(file, out->server_key);
        return rc;
    }
    memset(out, 0, sizeof *out);
    uint8_t key[KEY_BYTES];
    rc = line_read(file, text, sizeof text, e);
    if (rc == HP_EPARSE || (rc == 0 && key_decode(text, key, e) < 0)) {
        err_set(e, HP_EPARSE, "%s: damaged: it does not hold the coordinator's key", file);
        return err_hint(e, "start the agent with a new join token of its cluster (--token-file); "
                           "`hpctl node token create` makes one");
    }
    if (rc < 0) {
        err_set(e, HP_EUSAGE, "this agent has never joined a cluster, and there is no join token");
        return err_hint(
            e,
            "`hpctl node token create` makes one; give it with --token-file or in HP_JOIN_TOKEN");
    }
    memcpy(out->server_key, text, KEY_TEXT);
    return 0;
}

static int folder_find(const char *given, char *out, size_t size, struct err *e)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = given             ? snprintf(out, size, "%s", given)
            : state && *state ? snprintf(out, size, "%s/hodgepodge/agent", state)
            : home && *home   ? snprintf(out, size, "%s/.local/state/hodgepodge/agent", home)
                              : 0;
    if (n <= 0 || n > 1000)
        return err_set(e, HP_EUSAGE, "where to keep keys and weights? --dir D");
    return fs_folder_make(out, 0700, e);
}

/* ---- running ---- */

struct program {
    uv_loop_t loop;
    uv_signal_t term, interrupt;
    struct chaos_orders chaos;
    struct agent *agent;
    struct err why;           /* the cluster does not want it */
    struct data_policy data;  /* what the cluster wants of the data channel */
    bool reopen;              /* which is another kind than the one that is open */
    char data_file[PATH_MAX]; /* where that is kept */
};

/* The policy as two lines: the mode, and the trusted networks. One that cannot be read is one that
 * is not known yet. */
static void data_policy_load(const char *file, struct data_policy *out)
{
    char mode[64] = "", trust[DATA_TRUST_TEXT] = "";
    FILE *f = fopen(file, "re");
    if (f && fgets(mode, sizeof mode, f) && fgets(trust, sizeof trust, f)) {
        mode[strcspn(mode, "\n")] = trust[strcspn(trust, "\n")] = '\0';
        if (data_policy_set(out, mode, trust, NULL) < 0)
            *out = (struct data_policy){0};
    }
    if (f)
        fclose(f);
}

static void data_policy_save(const char *file, const struct data_policy *p)
{
    struct err e = {0};
    struct buffer text = {0};
    buffer_printf(&text, "%s\n%s\n", p->mode, p->trust);
    if (fs_buffer_save(file, &text, &e) < 0)
        log_warn("agent", "data_policy_not_kept", "text=\"%s\"", e.text);
}

static void on_data_wanted(void *ctx, const struct data_policy *wanted, bool reopen)
{
    struct program *p = ctx;
    p->data = *wanted;
    data_policy_save(p->data_file, wanted);
    if (!reopen)
        return;
    log_info("agent", "data_reopen", "mode=%s trust=\"%s\"", wanted->mode, wanted->trust);
    p->reopen = true;
    uv_stop(&p->loop);
}

static void on_quit(void *ctx, const struct err *why)
{
    struct program *p = ctx;
    p->why = *why;
    uv_stop(&p->loop);
}

static void on_signal(uv_signal_t *s, int number)
{
    struct program *p = s->data;
    log_info("agent", "stop", "signal=%s", number == SIGTERM ? "TERM" : "INT");
    uv_stop(&p->loop);
}

static void signals_start(struct program *p)
{
    signal(SIGPIPE, SIG_IGN);
    uv_signal_init(&p->loop, &p->term);
    uv_signal_init(&p->loop, &p->interrupt);
    p->term.data = p->interrupt.data = p;
    uv_signal_start(&p->term, on_signal, SIGTERM);
    uv_signal_start(&p->interrupt, on_signal, SIGINT);
}

static void on_chaos(void *ctx, struct link_fault fault)
{
    struct program *p = ctx;
    if (p->agent)
        agent_links_disturb(p->agent, fault);
}

/* All threads of the process stay on the cores that it was given. */
static int cores_pin(const struct discover_share *share, struct err *e)
{
    cpu_set_t mine;
    CPU_ZERO(&mine);
    for (int i = 0; i < share->n_cores; i++)
        CPU_SET((size_t)share->cores[i], &mine);
    return sched_setaffinity(0, sizeof mine, &mine) == 0
               ? 0
               : err_set(e, HP_EDEVICE, "cannot keep to the cores given: %s", strerror(errno));
}

enum { SPILL_TRANSIT_PART = 16, SPILL_TRANSIT_MOST = 256 << 20 };

/* What is spilled to memory is of the memory that the agent was given, and so is what is on its way
 * there, to files, and back. */
static int spill_memory_take(struct agent_config *c, struct err *e)
{
    struct discover_share *share = &c->share;
    uint64_t some = share->memory_bytes / SPILL_TRANSIT_PART;
    if (c->spill_memory_bytes > share->memory_bytes / 2)
        return err_set(e, HP_EUSAGE,
                       "--kv-spill-memory: at most half of the agent's memory (%llu bytes)",
                       (unsigned long long)share->memory_bytes);
    if (!c->spill_memory_bytes && !c->spill_disk_bytes)
        return 0;
    c->spill_transit_bytes = some < SPILL_TRANSIT_MOST ? some : SPILL_TRANSIT_MOST;
    share->memory_bytes -= c->spill_memory_bytes + c->spill_transit_bytes;
    return 0;
}

static int program_run(const struct agent_config *c, struct program *p, struct err *e)
{
    struct agent_config config = *c;
    config.quit = on_quit;
    config.ctx = p;
    uv_loop_init(&p->loop);
    signals_start(p);
    config.data_wanted = on_data_wanted;
    config.process = env_random_u64(&env_real);
    int rc = c->chaos_links ? chaos_orders_open(&p->chaos, &p->loop, on_chaos, p, e) : 0;
    bool hears_chaos = rc == 0 && c->chaos_links;
    for (p->reopen = true; rc == 0 && p->reopen;) {
        p->reopen = false;
        config.data = p->data;
        rc = agent_start(&p->loop, &config, &p->agent, e);
        if (rc == 0)
            uv_run(&p->loop, UV_RUN_DEFAULT);
        agent_stop(&p->agent);
        uv_run(&p->loop, UV_RUN_NOWAIT); /* what it closed */
    }
    if (hears_chaos)
        chaos_orders_close(&p->chaos);
    uv_close((uv_handle_t *)&p->term, NULL);
    uv_close((uv_handle_t *)&p->interrupt, NULL);
    uv_run(&p->loop, UV_RUN_DEFAULT);
    uv_loop_close(&p->loop);
    if (rc == 0 && p->why.code < 0) {
        *e = p->why;
        rc = p->why.code;
    }
    return rc;
}

/* The part of the box that the agent has, and nothing of the rest. */
static int share_take(const struct agent_options *o, struct agent_config *c, struct err *e)
{
    int rc = discover_share(o->cores, o->threads, o->memory_bytes, &c->share, e);
    rc = rc < 0 ? rc : spill_memory_take(c, e);
    if (rc == 0 && o->n_devices)
        rc = discover_devices(o->devices, o->n_devices, &c->share, e);
    return rc < 0 ? rc : cores_pin(&c->share, e);
}

static int program_start(int argc, char **argv, struct err *e)
{
    struct agent_options o = {0};
    struct agent_config *c = &o.config;
    struct join_token token;
    char dir[1024], host[256] = "";
    struct program p = {0};
    int rc = agent_options_parse(argc, argv, &o, e);
    if (rc != 0)
        return rc;
    if (c->chaos_links)
        chaos_orders_take();
    rc = descriptors_raise(e);
    rc = rc < 0 ? rc : network_check(c->network, e);
    rc = rc < 0 ? rc : folder_find(c->dir, dir, sizeof dir, e);
    rc = rc < 0 ? rc : trust_find(&o, dir, &token, e);
    rc = rc < 0 ? rc : share_take(&o, c, e);
    if (rc < 0)
        return rc;
    if (!c->name && gethostname(host, sizeof host - 1) == 0)
        c->name = host;
    c->name = c->name ? c->name : "";
    c->server_key = token.server_key;
    c->secret = token.secret;
    c->dir = dir;
    if (!c->network && address_is_loopback(c->coordinator))
        c->network = "lo";
    snprintf(p.data_file, sizeof p.data_file, "%s/data-channel", dir);
    data_policy_load(p.data_file, &p.data);
    return program_run(c, &p, e);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    heap_return_large();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a failed write, not the end */
    int rc = program_start(argc, argv, &e);
    if (rc >= 0)
        return 0;
    fprintf(stderr, "hp-agent: %s\n", e.text);
    if (e.hint[0])
        fprintf(stderr, "  %s\n", e.hint);
    return status_exit_code(rc);
}
