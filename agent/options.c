#include "agent/options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/host_address.h"
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
    "(default: one device of all cores);\n"
    "                        or cuda:N[/share=1/V][,mem=BYTES][,host=BYTES[,small=BYTES]], an "
    "NVIDIA GPU with "
    "memory of its own (default: nine\n"
    "                        tenths of what is free), by libhp-cuda.so, or 1/2, 1/3 or 1/4 of its "
    "multiprocessors and of that\n"
    "                        memory; host is of the box's, beside --memory, for tables of "
    "embeddings that the GPU reads there, and\n"
    "                        for norms and matrices of at most small bytes (default: none)\n"
    "  --store-limit BYTES   disk for weights (default: none); models not in use go first\n"
    "  --measurements D      where what was measured of models on this box is kept (default: below "
    "--dir)\n"
    "  --store-borrow        a file of this box that a deployment names is used where it lies and "
    "not copied (default: copied);\n"
    "                        it has to stay as it is\n"
    "  --serve-while-loading a stage takes batches before its weights are there: each of its "
    "layers runs as soon as it is\n"
    "                        loaded, so that the first token comes with the last layer; other "
    "stages of the device wait meanwhile\n"
    "  --kv-spill-memory BYTES, --kv-spill-disk BYTES\n"
    "                        KV cache of prompts and of sequences that make room for others is "
    "kept "
    "in so much of --memory, and\n"
    "                        then in so much of --dir, and read back where that is sooner than "
    "computing it again (default: neither)\n"
    "  --kernels NAME        amx, avx512_bf16, avx512, avx_vnni, avx2, or plain: the reference in "
    "plain "
    "loops "
    "(default: the best that\n"
    "                        the CPU has)\n"
    "  --network IFACE       interface of the data channel (default: the one on the way to the "
    "coordinator)\n"
    "  --gpu-direct auto|off whether rows of prompts go between a GPU's memory and the wire "
    "without "
    "the host's: auto (default) where\n"
    "                        the data channel is UCX and its transports know CUDA, which UCX_TLS "
    "has to name; off: never\n"
    "  --data-port P         TCP port of the data channel, which other agents must reach (default: "
    "any free one; the log tells it)\n"
    "  --pace C.json         stands for a device of this cluster file (hp-cluster/1): computes no "
    "faster than --profile says and\n"
    "                        sends no faster than its links, with its memory; a model with as many "
    "layers stands in for the profile's\n"
    "  --profile P.json      what that model costs there (hp-profile/1)\n"
    "  --as NODE/DEVICE      which device\n"
    "  --chaos-links         for tests, on loopback only: any process of this user may say with a "
    "signal that what this agent sends to\n"
    "                        others is late for a while; `hpctl local up` gives it, for `hpctl "
    "chaos`\n"
    "  --help, --version\n"
    "\n"
    "HP_TEST_POOL=BYTES, for tests, bounds the buffers of the data channel, which otherwise follow "
    "from what a deployment needs.\n"
    "HP_LOG=error|warn|info|debug sets how much it says on standard error. SIGTERM and SIGINT end "
    "it cleanly.\n"
    "\n"
    "  hp-agent --join 192.168.1.10:7070 --token-file token --cores 0-7 --memory 24G\n"
    "  hp-agent --join 192.168.1.10:7070 --device cpu:0-15 --device cpu:16-31,mem=24G\n";

static int bytes_parse(const char *option, const char *text, uint64_t *out, struct err *e)
{
    if (units_bytes_parse(text, out))
        return 0;
    return err_set(e, HP_EUSAGE, "%s %s: is not a size such as " UNITS_BYTES_HELP, option, text);
}

enum { MEMORY_LEAST = 1 << 20 }; /* less is a slip of the pen */

static int memory_parse(const char *text, uint64_t *out, struct err *e)
{
    int rc = bytes_parse("--memory", text, out, e);
    if (rc == 0 && *out < MEMORY_LEAST)
        rc = err_set(e, HP_EUSAGE, "--memory %s: an agent needs at least %d MiB", text,
                     MEMORY_LEAST >> 20);
    return rc;
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

static int port_parse(const char *option, const char *text, uint16_t *out, struct err *e)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > 65535)
        return err_set(e, HP_EUSAGE, "%s %s: is not a port from 1 to 65535", option, text);
    *out = (uint16_t)n;
    return 0;
}

static int direct_parse(const char *text, bool *off, struct err *e)
{
    *off = strcmp(text, "off") == 0;
    return *off || strcmp(text, "auto") == 0
               ? 0
               : err_set(e, HP_EUSAGE, "--gpu-direct %s: is neither auto nor off", text);
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

static int device_add(struct agent_options *o, const char *text, struct err *e)
{
    if (o->n_devices == DISCOVER_MAX_DEVICES)
        return err_set(e, HP_EUSAGE, "--device %s: an agent has at most %d devices", text,
                       (int)DISCOVER_MAX_DEVICES);
    o->devices[o->n_devices++] = text;
    return 0;
}

/* Links that somebody may disturb are those of a cluster on one box. */
static int chaos_check(const struct agent_config *c, struct err *e)
{
    bool far =
        !address_is_loopback(c->coordinator) || (c->network && strcmp(c->network, "lo") != 0);
    if (!c->chaos_links || !far)
        return 0;
    err_set(e, HP_EUSAGE,
            "--chaos-links is for agents whose coordinator and data channel are on "
            "loopback");
    return err_hint(e, "leave it out: it is there for `hpctl chaos`, which disturbs clusters of "
                       "`hpctl local up` alone");
}

/* Options that do not go with each other. */
static int options_check(const struct agent_options *o, struct err *e)
{
    const struct agent_config *c = &o->config;
    if (!c->coordinator)
        return err_set(e, HP_EUSAGE, "where is the coordinator? --join HOST:PORT");
    if (!c->pace_cluster != !c->pace_profile || !c->pace_cluster != !c->pace_as)
        return err_set(e, HP_EUSAGE,
                       "--pace, --profile and --as go together: a cluster file, what a model costs "
                       "there, and which device to stand for");
    if (c->pace_cluster && o->n_devices > 1)
        return err_set(e, HP_EUSAGE,
                       "--pace stands for one device: leave --device out, or give it once");
    if (o->threads && o->n_devices)
        return err_set(e, HP_EUSAGE,
                       "--threads is of an agent without --device: say threads=%d "
                       "with the device",
                       o->threads);
    int rc = address_check(c->coordinator, e);
    return rc < 0 ? rc : chaos_check(c, e);
}

static const struct option option_table[] = {{"join", 1, NULL, 'j'},
                                             {"token", 1, NULL, 't'},
                                             {"token-file", 1, NULL, 'T'},
                                             {"name", 1, NULL, 'n'},
                                             {"dir", 1, NULL, 'd'},
                                             {"cores", 1, NULL, 'c'},
                                             {"threads", 1, NULL, 'p'},
                                             {"memory", 1, NULL, 'm'},
                                             {"measurements", 1, NULL, 'e'},
                                             {"store-limit", 1, NULL, 's'},
                                             {"store-borrow", 0, NULL, 'b'},
                                             {"serve-while-loading", 0, NULL, 'w'},
                                             {"kv-spill-memory", 1, NULL, 'M'},
                                             {"kv-spill-disk", 1, NULL, 'S'},
                                             {"kernels", 1, NULL, 'k'},
                                             {"network", 1, NULL, 'i'},
                                             {"gpu-direct", 1, NULL, 'G'},
                                             {"data-port", 1, NULL, 'D'},
                                             {"pace", 1, NULL, 'P'},
                                             {"profile", 1, NULL, 'F'},
                                             {"as", 1, NULL, 'A'},
                                             {"device", 1, NULL, 'V'},
                                             {"chaos-links", 0, NULL, 'L'},
                                             {"help", 0, NULL, 'h'},
                                             {"version", 0, NULL, 'v'},
                                             {0}};

int agent_options_parse(int argc, char **argv, struct agent_options *o, struct err *e)
{
    struct agent_config *c = &o->config;
    int which, rc = 0;
    opterr = 0;
    while (rc == 0 && (which = getopt_long(argc, argv, ":", option_table, NULL)) != -1)
        switch (which) {
        case 'j': c->coordinator = optarg; break;
        case 't': o->token = optarg; break;
        case 'T': o->token_file = optarg; break;
        case 'n': c->name = optarg; break;
        case 'd': c->dir = optarg; break;
        case 'c': o->cores = optarg; break;
        case 'k': c->kernels = optarg; break;
        case 'i': c->network = optarg; break;
        case 'P': c->pace_cluster = optarg; break;
        case 'F': c->pace_profile = optarg; break;
        case 'A': c->pace_as = optarg; break;
        case 'V': rc = device_add(o, optarg, e); break;
        case 'p': rc = count_parse("--threads", optarg, &o->threads, e); break;
        case 'm': rc = memory_parse(optarg, &o->memory_bytes, e); break;
        case 'D': rc = port_parse("--data-port", optarg, &c->data_port, e); break;
        case 'G': rc = direct_parse(optarg, &c->direct_off, e); break;
        case 'e': c->measured_dir = optarg; break;
        case 'b': c->store_borrows = true; break;
        case 'w': c->serves_early = true; break;
        case 'L': c->chaos_links = true; break;
        case 's': rc = bytes_parse("--store-limit", optarg, &c->store_limit_bytes, e); break;
        case 'M': rc = bytes_parse("--kv-spill-memory", optarg, &c->spill_memory_bytes, e); break;
        case 'S': rc = bytes_parse("--kv-spill-disk", optarg, &c->spill_disk_bytes, e); break;
        case 'h': fputs(help_text, stdout); return HP_PENDING;
        case 'v': puts("hp-agent " HP_VERSION); return HP_PENDING;
        case ':': return err_set(e, HP_EUSAGE, "%s needs a value", argv[optind - 1]);
        default:
            return err_set(e, HP_EUSAGE, "%s is not an option of hp-agent; --help lists them",
                           argv[optind - 1]);
        }
    const char *pool = getenv("HP_TEST_POOL");
    if (rc == 0 && pool)
        rc = bytes_parse("HP_TEST_POOL", pool, &c->pool_limit_bytes, e);
    if (rc == 0 && optind < argc)
        return err_set(e, HP_EUSAGE, "%s: hp-agent takes options alone; --help lists them",
                       argv[optind]);
    return rc < 0 ? rc : options_check(o, e);
}
