/* `hpctl model run`: what an ONNX model computes of arrays, on this machine without a cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/threads.h"
#include "agent/discover_devices.h"
#include "agent/engine/network/network_engine.h"
#include "common/host_limits.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"
#include "hpctl/waiting.h"
#include "model/files/npz.h"
#include "model/text_network.h"

struct onnx_run {
    struct threads *threads;
    struct device *gpu; /* NULL: the CPU */
    struct network_device *device;
    struct onnx_network *network;  /* NULL once the engine has it */
    struct network_engine *engine; /* NULL: the reference runs it */
    const struct onnx *o;
    int n_run_nodes;
    struct npz given, made;
    const struct ndarray **inputs; /* [n_inputs], of `given` */
    struct ndarray *outputs;       /* [n_outputs] */
    char prefix[256];              /* "CASE/", or "" */
};

static void onnx_run_close(struct onnx_run *r)
{
    for (int i = 0; r->outputs && i < r->o->n_outputs; i++)
        ndarray_free(&r->outputs[i]);
    free(r->outputs);
    free(r->inputs);
    npz_free(&r->given);
    npz_free(&r->made);
    network_engine_close(&r->engine);
    network_close(&r->network);
    network_device_close(&r->device);
    device_close(&r->gpu);
    threads_destroy(&r->threads);
}

/* Says what the model wants and what the file has, as far as there is room. */
static int input_missing(const struct onnx_run *r, const struct onnx_value *v, const char *path,
                         const char *name, struct err *e)
{
    char wanted[NETWORK_INPUT_TEXT], has[120] = "nothing";
    size_t used = 0;
    const struct npz *z = &r->given;
    for (int i = 0; i < z->n_arrays && used < sizeof has; i++)
        used += (size_t)snprintf(has + used, sizeof has - used, "%s%s", i ? ", " : "",
                                 z->arrays[i].name);
    if (used >= sizeof has)
        memcpy(has + sizeof has - 4, "...", 4);
    int rc = err_set(e, HP_EINVAL, "%s: has no array %s; it has %s", path, name, has);
    const char *slash = z->n_arrays ? strchr(z->arrays[0].name, '/') : NULL;
    if (slash && !r->prefix[0])
        err_hint(e, "the model wants %s: %s; --case %.*s takes what is named so", v->name,
                 network_input_text(v, wanted), (int)(slash - z->arrays[0].name),
                 z->arrays[0].name);
    else
        err_hint(e, "the model wants %s: %s", v->name, network_input_text(v, wanted));
    return rc;
}

static int inputs_find(struct onnx_run *r, const char *path, struct err *e)
{
    char name[512];
    for (int i = 0; i < r->o->n_inputs; i++) {
        const struct onnx_value *v = &r->o->values[r->o->inputs[i]];
        snprintf(name, sizeof name, "%s%s", r->prefix, v->name);
        r->inputs[i] = npz_find(&r->given, name);
        if (!r->inputs[i])
            return input_missing(r, v, path, name, e);
    }
    for (int i = 0; i < r->given.n_arrays; i++) {
        bool is_known = strncmp(r->given.arrays[i].name, r->prefix, strlen(r->prefix)) != 0;
        for (int k = 0; k < r->o->n_inputs; k++)
            is_known |= r->inputs[k] == &r->given.arrays[i].array;
        if (!is_known)
            return err_set(e, HP_EINVAL, "%s: array %s is no input of the model", path,
                           r->given.arrays[i].name);
    }
    return 0;
}

static int outputs_name(struct onnx_run *r, struct err *e)
{
    char name[512];
    int rc = 0;
    for (int i = 0; i < r->o->n_outputs && rc == 0; i++) {
        snprintf(name, sizeof name, "%s%s", r->prefix, r->o->values[r->o->outputs[i]].name);
        rc = npz_add(&r->made, name, &r->outputs[i], e);
    }
    return rc;
}

/* JSON has no infinities: null. */
static json_t *number_json(const struct ndarray *a, int64_t i)
{
    if (!ndarray_type_is_float(a->type))
        return json_integer(ndarray_i64(a, i));
    json_t *number = json_real(ndarray_f64(a, i));
    return number ? number : json_null();
}

/* {"NAME": {"type", "shape": [..], "data": [..]}}, the data row by row. */
static json_t *outputs_json(const struct onnx_run *r)
{
    json_t *all = json_object();
    for (int i = 0; i < r->made.n_arrays; i++) {
        const struct ndarray *a = &r->made.arrays[i].array;
        json_t *shape = json_array(), *data = json_array();
        for (int d = 0; d < a->n_dims; d++)
            json_array_append_new(shape, json_integer(a->dims[d]));
        for (int64_t k = 0; k < a->count; k++)
            json_array_append_new(data, number_json(a, k));
        json_object_set_new(all, r->made.arrays[i].name,
                            json_pack("{s:s, s:o, s:o}", "type", ndarray_type_name(a->type),
                                      "shape", shape, "data", data));
    }
    return all;
}

static void outputs_print(const struct onnx_run *r, const char *path)
{
    char shape[ND_SHAPE_TEXT];
    int run = r->n_run_nodes, all = r->o->n_nodes;
    printf("%s: %d of %d nodes run%s\n", path, run, all,
           run < all ? ", the others follow from constants" : "");
    struct network_plan_facts f = {0};
    if (r->engine)
        f = network_engine_describe(r->engine);
    if (f.steps > 0)
        printf("  in %d steps, %d of them by the reference; values in %.1f MB\n", f.steps,
               f.reference_steps, (double)f.arena_bytes / 1e6);
    if (f.cut_steps > 0 && !r->device)
        printf("  %d threads share out %d of the steps\n", threads_count(r->threads), f.cut_steps);
    for (int i = 0; i < r->made.n_arrays; i++)
        printf("  %s  %s %s\n", r->made.arrays[i].name,
               ndarray_type_name(r->made.arrays[i].array.type),
               ndarray_shape_text(&r->made.arrays[i].array, shape));
}

static int onnx_run_open(const struct invocation *in, struct onnx_run *r, struct err *e)
{
    const char *name = invocation_option(in, "case"), *path;
    uint64_t memory;
    int rc = invocation_required(in, "input", &path, e);
    if (rc < 0)
        return rc;
    if (name && strlen(name) + 2 > sizeof r->prefix)
        return err_set(e, HP_EUSAGE, "--case: \"%.40s...\" is too long", name);
    if (name)
        snprintf(r->prefix, sizeof r->prefix, "%s/", name);
    if (!host_memory_free("", &memory))
        memory = host_memory_default();
    rc = text_network_open(in->arguments[0], memory, &r->network, e);
    if (rc < 0)
        return rc;
    r->o = network_onnx(r->network);
    r->n_run_nodes = network_run_nodes(r->network);
    r->inputs = calloc((size_t)r->o->n_inputs + 1, sizeof *r->inputs);
    r->outputs = calloc((size_t)r->o->n_outputs + 1, sizeof *r->outputs);
    if (!r->inputs || !r->outputs)
        return err_no_memory(e, "a run");
    rc = npz_read(path, &r->given, e);
    return rc < 0 ? rc : inputs_find(r, path, e);
}

/* A GPU, or a part of one, as hp-agent has it. */
static int gpu_open(const char *text, struct onnx_run *r, struct err *e)
{
    struct discover_share share;
    int rc = discover_share(NULL, 0, 0, &share, e);
    rc = rc < 0 ? rc : discover_devices(&text, 1, &share, e);
    if (rc < 0)
        return rc;
    const struct discover_device own = discover_device_at(&share, 0);
    if (!own.backend)
        return err_set(e, HP_EUSAGE, "--device %s is no GPU: without it the CPU computes", text);
    const struct device_config c = {.backend = own.backend->name,
                                    .of = own.backend,
                                    .ordinal = own.ordinal,
                                    .part = own.part,
                                    .memory_bytes = own.memory_bytes};
    rc = device_open(&c, &r->gpu, e);
    return rc < 0 ? rc : network_device_open(r->gpu, 0, 1, NULL, &r->device, e);
}

static int engine_open(const struct invocation *in, int threads, struct onnx_run *r, struct err *e)
{
    const char *device = invocation_option(in, "device");
    int rc = threads_create(threads, NULL, 0, &r->threads, e);
    if (rc == 0 && device)
        rc = gpu_open(device, r, e);
    return rc < 0 ? rc : network_engine_open(&r->network, r->threads, r->device, &r->engine, e);
}

static int run_verb(struct invocation *in, struct err *e)
{
    enum { COMPUTE_REFERENCE = 2 };
    static const char *const computes[] = {"auto", "f32", "f32-reference", NULL};
    struct onnx_run r = {0};
    uint64_t stages, threads;
    int compute, rc = invocation_u64(in, "stages", 1, &stages, e);
    rc = rc < 0 ? rc
                : invocation_range(in, "threads", (uint64_t)threads_possible(), 1, THREADS_MAX,
                                   &threads, e);
    rc = rc < 0 ? rc : invocation_choice(in, "compute", computes, 0, &compute, e);
    if (rc == 0 && (stages < 1 || stages > 4096))
        rc = err_set(e, HP_EUSAGE, "--stages is %llu; it must be 1 to 4096",
                     (unsigned long long)stages);
    if (rc == 0 && !in->output && !in->json)
        rc = err_set(e, HP_EUSAGE, "hpctl model run needs -o OUT.npz (or -o json)");
    struct waiting *w = waiting_begin("computing", 0, in->json);
    rc = rc < 0 ? rc : onnx_run_open(in, &r, e);
    if (rc == 0 && compute == COMPUTE_REFERENCE && invocation_option(in, "device"))
        rc = err_set(e, HP_EUSAGE, "--compute f32-reference is the CPU's: leave --device out");
    if (rc == 0 && compute != COMPUTE_REFERENCE) {
        rc = engine_open(in, (int)threads, &r, e);
    }
    if (rc == 0) {
        rc = r.engine ? network_engine_run(r.engine, (int)stages, r.inputs, r.outputs, e)
                      : network_run(r.network, (int)stages, r.inputs, r.outputs, e);
        if (rc < 0)
            err_at(e, "%s", in->arguments[0]);
    }
    rc = rc < 0 ? rc : outputs_name(&r, e);
    waiting_end(&w);
    if (rc == 0 && in->output) {
        rc = npz_write(in->output, &r.made, e);
        if (rc == 0)
            outputs_print(&r, in->output);
    } else if (rc == 0) {
        rc = invocation_print_json(in, outputs_json(&r), e);
    }
    onnx_run_close(&r);
    return rc;
}

static const struct command_option run_options[] = {
    {"input", "IN.npz", "arrays named like the model's inputs (numpy.savez)", 0},
    {"case", "C", "those named C/INPUT; outputs are named C/OUTPUT", 0},
    {"stages", "N", "cut the graph into N stages, joined as agents would be (1)", 0},
    {"compute", "auto|f32|f32-reference", "float32 each way; the reference runs plain loops", 0},
    {"threads", "N", "threads to compute with (as many as cores); the bits are the same", 0},
    {"device", "cuda:N[/share=1/V][,mem=BYTES]", "on a GPU instead, as hp-agent --device has it",
     0},
    {0},
};

const struct command onnx_verbs[] = {
    {.path = "model run",
     .arguments = "MODEL",
     .min_arguments = 1,
     .max_arguments = 1,
     .summary = "arrays through an ONNX model, or a language model as a network",
     .details =
         "Reads arrays from an uncompressed .npz, runs the graph on this machine's CPU, "
         "fused and planned for the arrays' sizes, and writes the outputs to another "
         "(-o OUT.npz), named by tensor. --compute f32-reference runs the plain loops that "
         "say what operators mean. With --device a GPU computes, and the host what only "
         "the reference has.\n"
         "Opsets 7 to 23, 134 operators, weights in the file or beside it. Models with "
         "dynamic sizes take whatever arrays fit. A language model (GGUF file or Hugging Face "
         "folder) is run as the network that pools serve: input_ids and attention_mask to "
         "embedding, or to logprobs where it does not pool.",
     .examples = "  hpctl model run resnet50.onnx --input pictures.npz -o classes.npz\n"
                 "  hpctl model run bert.onnx --input cases.npz --case b3 --stages 2 -o out.npz",
     .options = run_options,
     .run = run_verb},
    {0},
};
