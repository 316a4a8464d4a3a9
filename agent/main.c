/* hp-agent: the program. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
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
#include "agent/discover_devices.h"
#include "common/fs.h"
#include "common/host_address.h"
#include "common/log.h"
#include "common/units.h"

static const char help_text[] =
    "usage: hp-agent --join HOST:PORT [--token T | --token-file F] [options]\n"
    "\n"
    "Makes this box a node of a Hodgepodge cluster: it tells the coordinator what it has, keeps "
    "the weights that it is\n"
    "given and runs its stages of models.\n"
    "\n"
    "  --join HOST:PORT      where the coordinator listens\n"
    "  --token T             a join token (`hpctl node token create`); needed the first time. "
    "Other users of this box can\n"
    "                        see a command line: better --token-file, or the variable "
    "HP_JOIN_TOKEN\n"
    "  --token-file F        reads the token from a file\n"
    "  --name N              what this node asks to be called (default: the host's name)\n"
    "  --dir D               keys, weights and measurements (default: "
    "$XDG_STATE_HOME/hodgepodge/agent)\n"
    "  --cores LIST|any:K    cores to use, such as 0,2-3, or any K of them (default: all)\n"
    "  --threads N           threads that compute (default: one for each physical core among them, "
    "within the control\n"
    "                        groups' quota)\n"
    "  --memory BYTES        for all that it does: weights, KV cache, activations, "
    "buffers; " UNITS_BYTES_HELP "\n"
    "                        (default: 90 % of the box, or of the tightest of its control groups)\n"
    "  --device SPEC         a part of this box that runs stages by itself; may be given more than "
    "once, and then the agent has\n"
    "                        devices cpu0, cpu1, …. SPEC is "
    "cpu[:CORES][,mem=BYTES][,threads=N]: CORES as for --cores, a core is of one\n"
    "                        device, and one device may do without and take the rest; mem is for "
    "its stages, out of --memory, which\n"
    "                        the devices that do not say share in proportion to their cores "
    "(default: one device of all cores)\n"
    "  --store-limit BYTES   disk for weights (default: none); models not in use go first\n"
    "  --kernels NAME        avx512_bf16, avx512, avx2, or plain: the reference in plain loops "
    "(default: the best that\n"
    "                        the CPU has)\n"
    "  --network IFACE       interface of the data channel (default: the one on the way to the "
    "coordinator)\n"
    "  --data-port P         TCP port of the data channel, which other agents must reach (default: "
    "any free one; the log tells it)\n"
    "  --pace C.json         stands for a device of this cluster file (hp-cluster/1): computes no "
    "faster than --profile says and\n"
    "                        sends no faster than its links, with its memory; a model with as many "
    "layers stands in for the profile's\n"
    "  --profile P.json      what that model costs there (hp-profile/1)\n"
    "  --as NODE/DEVICE      which device\n"
    "  --help, --version\n"
    "\n"
    "HP_TEST_POOL=BYTES, for tests, bounds the buffers of the data channel, which otherwise follow "
    "from what a deployment needs.\n"
    "HP_LOG=error|warn|info|debug sets how much it says on standard error. SIGTERM and SIGINT end "
    "it cleanly.\n"
    "\n"
    "  hp-agent --join 192.168.1.10:7070 --token-file token --cores 0-7 --memory 24G\n"
    "  hp-agent --join 192.168.1.10:7070 --device cpu:0-15 --device cpu:16-31,mem=24G\n";

struct options {
    const char *join, *token, *token_file, *name, *dir, *cores, *network, *kernels, *pace, *profile,
        *as;
    const char *devices[DISCOVER_MAX_DEVICES];
    int n_devices, threads, data_port;
    uint64_t memory_bytes, store_limit_bytes, pool_bytes;
};

static int bytes_parse(const char *option, const char *text, uint64_t *out, struct err *e)
{
    if (units_bytes_parse(text, out))
        return 0;
    return err_set(e, HP_EUSAGE, "%s %s: is not a size such as " UNITS_BYTES_HELP, option, text);
}

static int count_parse(const char *option, const char *text, int *out, struct err *e)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > DISCOVER_MAX_CORES)
        return err_set(e, HP_EUSAGE, "%s %s: is not a number from 1 to %d", option, text,
                       (int)DISCOVER_MAX_CORES);
    *out = (int)n;
    return 0;
}

static int port_parse(const char *option, const char *text, int *out, struct err *e)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > 65535)
        return err_set(e, HP_EUSAGE, "%s %s: is not a port from 1 to 65535", option, text);
    *out = (int)n;
    return 0;
}

static int address_check(const char *address, struct err *e)
{
    const char *colon = strrchr(address, ':');
    char *end = NULL;
    long port = colon && isdigit((unsigned char)colon[1]) ? strtol(colon + 1, &end, 10) : 0;
    if (port < 1 || port > 65535 || *end || colon == address)
        return err_set(e, HP_EUSAGE, "--join %s: is not HOST:PORT", address);
    return 0;
}

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

static int device_add(struct options *o, const char *text, struct err *e)
{
    if (o->n_devices == DISCOVER_MAX_DEVICES)
        return err_set(e, HP_EUSAGE, "--device %s: an agent has at most %d devices", text,
                       (int)DISCOVER_MAX_DEVICES);
    o->devices[o->n_devices++] = text;
    return 0;
}

/* Options that do not go with each other. */
static int options_check(const struct options *o, struct err *e)
{
    if (!o->join)
        return err_set(e, HP_EUSAGE, "where is the coordinator? --join HOST:PORT");
    if (!o->pace != !o->profile || !o->pace != !o->as)
        return err_set(e, HP_EUSAGE,
                       "--pace, --profile and --as go together: a cluster file, what a model costs "
                       "there, and which device to stand for");
    if (o->pace && o->n_devices > 1)
        return err_set(e, HP_EUSAGE,
                       "--pace stands for one device: leave --device out, or give it once");
    if (o->threads && o->n_devices)
        return err_set(e, HP_EUSAGE,
                       "--threads is of an agent without --device: say threads=%d "
                       "with the device",
                       o->threads);
    return address_check(o->join, e);
}

static int options_parse(int argc, char **argv, struct options *o, struct err *e)
{
    static const struct option table[] = {{"join", 1, NULL, 'j'},
                                          {"token", 1, NULL, 't'},
                                          {"token-file", 1, NULL, 'T'},
                                          {"name", 1, NULL, 'n'},
                                          {"dir", 1, NULL, 'd'},
                                          {"cores", 1, NULL, 'c'},
                                          {"threads", 1, NULL, 'p'},
                                          {"memory", 1, NULL, 'm'},
                                          {"store-limit", 1, NULL, 's'},
                                          {"kernels", 1, NULL, 'k'},
                                          {"network", 1, NULL, 'i'},
                                          {"data-port", 1, NULL, 'D'},
                                          {"pace", 1, NULL, 'P'},
                                          {"profile", 1, NULL, 'F'},
                                          {"as", 1, NULL, 'A'},
                                          {"device", 1, NULL, 'V'},
                                          {"help", 0, NULL, 'h'},
                                          {"version", 0, NULL, 'v'},
                                          {0}};
    int which, rc = 0;
    opterr = 0;
    while (rc == 0 && (which = getopt_long(argc, argv, ":", table, NULL)) != -1)
        switch (which) {
        case 'j': o->join = optarg; break;
        case 't': o->token = optarg; break;
        case 'T': o->token_file = optarg; break;
        case 'n': o->name = optarg; break;
        case 'd': o->dir = optarg; break;
        case 'c': o->cores = optarg; break;
        case 'k': o->kernels = optarg; break;
        case 'i': o->network = optarg; break;
        case 'P': o->pace = optarg; break;
        case 'F': o->profile = optarg; break;
        case 'A': o->as = optarg; break;
        case 'V': rc = device_add(o, optarg, e); break;
        case 'p': rc = count_parse("--threads", optarg, &o->threads, e); break;
        case 'm': rc = bytes_parse("--memory", optarg, &o->memory_bytes, e); break;
        case 'D': rc = port_parse("--data-port", optarg, &o->data_port, e); break;
        case 's': rc = bytes_parse("--store-limit", optarg, &o->store_limit_bytes, e); break;
        case 'h': fputs(help_text, stdout); return HP_PENDING;
        case 'v': puts("hp-agent " HP_VERSION); return HP_PENDING;
        case ':': return err_set(e, HP_EUSAGE, "%s needs a value", argv[optind - 1]);
        default:
            return err_set(e, HP_EUSAGE, "%s is not an option of hp-agent; --help lists them",
                           argv[optind - 1]);
        }
    const char *pool = getenv("HP_TEST_POOL");
    if (rc == 0 && pool)
        rc = bytes_parse("HP_TEST_POOL", pool, &o->pool_bytes, e);
    if (rc == 0 && optind < argc)
        return err_set(e, HP_EUSAGE, "%s: hp-agent takes options alone; --help lists them",
                       argv[optind]);
    return rc < 0 ? rc : options_check(o, e);
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
static int trust_find(const struct options *o, const char *dir, struct join_token *out,
                      struct err *e)
{
    char text[2 * TOKEN_TEXT] = "", file[PATH_MAX];
    const char *environment = getenv("HP_JOIN_TOKEN");
    int rc = 0;
    if (o->token)
        snprintf(text, sizeof text, "%s", o->token);
    else if (o->token_file)
        rc = line_read(o->token_file, text, sizeof text, e);
    else if (environment)
        snprintf(text, sizeof text, "%s", environment);
    if (rc < 0)
        return rc;
    snprintf(file, sizeof file, "%s/coordinator.key", dir);
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

static int folder_find(const struct options *o, char *out, size_t size, struct err *e)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = o->dir            ? snprintf(out, size, "%s", o->dir)
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

static int program_run(const struct agent_config *c, struct program *p, struct err *e)
{
    struct agent_config config = *c;
    config.quit = on_quit;
    config.ctx = p;
    uv_loop_init(&p->loop);
    signals_start(p);
    config.data_wanted = on_data_wanted;
    int rc;
    do {
        p->reopen = false;
        config.data = p->data;
        rc = agent_start(&p->loop, &config, &p->agent, e);
        if (rc == 0)
            uv_run(&p->loop, UV_RUN_DEFAULT);
        agent_stop(&p->agent);
        uv_run(&p->loop, UV_RUN_NOWAIT); /* what it closed */
    } while (rc == 0 && p->reopen);
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

static int program_start(int argc, char **argv, struct err *e)
{
    struct options o = {0};
    struct join_token token;
    char dir[1024], host[256] = "";
    struct agent_config c = {0};
    struct program p = {0};
    int rc = options_parse(argc, argv, &o, e);
    if (rc != 0)
        return rc;
    rc = network_check(o.network, e);
    rc = rc < 0 ? rc : folder_find(&o, dir, sizeof dir, e);
    rc = rc < 0 ? rc : trust_find(&o, dir, &token, e);
    rc = rc < 0 ? rc : discover_share(o.cores, o.threads, o.memory_bytes, &c.share, e);
    if (rc == 0 && o.n_devices)
        rc = discover_devices(o.devices, o.n_devices, &c.share, e);
    rc = rc < 0 ? rc : cores_pin(&c.share, e);
    if (rc < 0)
        return rc;
    if (!o.name && gethostname(host, sizeof host - 1) == 0)
        o.name = host;
    c.coordinator = o.join;
    c.server_key = token.server_key;
    c.secret = token.secret;
    c.name = o.name ? o.name : "";
    c.dir = dir;
    c.network = o.network ? o.network : address_is_loopback(o.join) ? "lo" : NULL;
    c.store_limit_bytes = o.store_limit_bytes;
    c.pool_limit_bytes = o.pool_bytes;
    c.kernels = o.kernels;
    c.pace_cluster = o.pace;
    c.pace_profile = o.profile;
    c.pace_as = o.as;
    c.data_port = (uint16_t)o.data_port;
    snprintf(p.data_file, sizeof p.data_file, "%s/data-channel", dir);
    data_policy_load(p.data_file, &p.data);
    return program_run(&c, &p, e);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    int rc = program_start(argc, argv, &e);
    if (rc >= 0)
        return 0;
    fprintf(stderr, "hp-agent: %s\n", e.text);
    if (e.hint[0])
        fprintf(stderr, "hint: %s\n", e.hint);
    return status_exit_code(rc);
}
