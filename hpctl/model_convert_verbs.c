/* `hpctl model convert`: any model as one GGUF file, in a number format of choice. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "hpctl/command.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"
#include "model/convert/convert.h"

enum { THREADS_MOST = 256 };

static volatile sig_atomic_t is_interrupted;

static void on_signal(int number)
{
    (void)number;
    is_interrupted = 1;
}

/* Ctrl-C and a polite end leave nothing half done behind. */
static void signals_catch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of its write */
}

static int show_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
    char what[96];
    snprintf(what, sizeof what, "converting: %s of %s", shown_bytes((double)done_bytes).s,
             shown_bytes((double)total_bytes).s);
    progress_show_bytes(ctx, what, (double)done_bytes, (double)total_bytes);
    return is_interrupted;
}

/* ---- what came of it ---- */

static json_t *formats_json(const struct convert_result *r)
{
    json_t *o = json_object();
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++)
        if (r->count[t])
            json_object_set_new(o, dtype_info((enum dtype)t)->name,
                                json_pack("{s:i, s:I}", "count", r->count[t], "bytes",
                                          (json_int_t)r->format_bytes[t]));
    return o;
}

static json_t *exceptions_json(const struct convert_result *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_exceptions; i++) {
        const struct convert_exception *x = &r->exceptions[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I}", "tensor", x->tensor, "wanted",
                                              dtype_info(x->wanted)->name, "written",
                                              dtype_info(x->written)->name, "row_elements",
                                              (json_int_t)x->columns));
    }
    return list;
}

static json_t *result_json(const struct invocation *in, const char *type,
                           const struct convert_result *r, double seconds)
{
    return json_pack("{s:s, s:s, s:I, s:f, s:o, s:o, s:i}", "file", in->arguments[1], "type", type,
                     "bytes", (json_int_t)r->bytes, "seconds", seconds, "tensors", formats_json(r),
                     "exceptions", exceptions_json(r), "requantised", r->n_requantised);
}

static void result_print(const struct invocation *in, const struct convert_result *r,
                         double seconds)
{
    printf("%s: %s in %s\n", in->arguments[1], shown_bytes((double)r->bytes).s,
           shown_seconds(seconds).s);
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++)
        if (r->count[t])
            printf("  %-7s %d tensors, %s\n", dtype_info((enum dtype)t)->name, r->count[t],
                   shown_bytes((double)r->format_bytes[t]).s);
    for (int i = 0; i < r->n_exceptions; i++) {
        const struct convert_exception *x = &r->exceptions[i];
        printf("  %s: %s instead of %s: rows of %llu are not whole blocks of %zu\n", x->tensor,
               dtype_info(x->written)->name, dtype_info(x->wanted)->name,
               (unsigned long long)x->columns, dtype_info(x->wanted)->block_elements);
    }
    if (r->n_requantised)
        printf("  %d tensors were quantised already: converting the model's first weights (F32, "
               "F16, BF16) loses less\n",
               r->n_requantised);
}

static int run_convert(struct invocation *in, struct err *e)
{
    struct progress_bar bar;
    struct convert_options o = {.progress = show_progress,
                                .progress_ctx = &bar,
                                .overwrite = invocation_flag(in, "overwrite")};
    struct convert_result result;
    struct model *m = NULL;
    uint64_t threads;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int rc = invocation_required(in, "type", &o.type, e);
    rc = rc < 0 ? rc : invocation_u64(in, "threads", cores > 0 ? (uint64_t)cores : 1, &threads, e);
    if (rc == 0 && (threads < 1 || threads > THREADS_MOST))
        rc = err_set(e, HP_EUSAGE, "--threads: %llu is not within 1 to %d",
                     (unsigned long long)threads, THREADS_MOST);
    rc = rc < 0 ? rc : model_open(in->arguments[0], &m, e);
    if (rc < 0)
        return rc;
    o.threads = (int)threads;
    progress_init(&bar, in->json || invocation_flag(in, "quiet"));
    signals_catch();
    uint64_t from = env_now_ns(&env_real);
    rc = model_convert(m, in->arguments[1], &o, &result, e);
    progress_end(&bar);
    model_close(&m);
    if (rc < 0)
        return rc;
    double seconds = (double)(env_now_ns(&env_real) - from) * 1e-9;
    if (in->json || in->output)
        rc = invocation_print_json(in, result_json(in, o.type, &result, seconds), e);
    else
        result_print(in, &result, seconds);
    convert_result_free(&result);
    return rc;
}

static const struct command_option options[] = {
    {"type", "TYPE", "the number format of the new file", 0},
    {"threads", "N", "threads to convert with (as many as cores)", 0},
    {"overwrite", NULL, "take the place of a file that is there, once the new one is whole", 0},
    {"quiet", NULL, "show no progress", 0},
    {0},
};

const struct command model_convert_verbs[] = {
    {"model convert", "MODEL OUT.gguf", 2, 2,
     "any model as one GGUF file, in a number format of choice",
     "MODEL is a GGUF file, also one in several parts (name the first), or a Hugging Face folder. "
     "TYPE is one of\n"
     "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k_s, q3_k_m, q3_k_l, q4_k_s, q4_k_m, "
     "q5_k_s, q5_k_m,\n"
     "q6_k, iq4_nl, iq4_xs and mxfp4. It says what most matrices become; some get more bits, as "
     "the format's usual\n"
     "makers have it; norms, biases and routers stay exact. Rows that are not whole blocks get "
     "another format, and\n"
     "the output names them. The file is written beside its name, opened as a check, and renamed: "
     "what ends early\n"
     "leaves nothing behind. Of the two sizes f16 and bf16, bf16 holds every value.",
     "  hpctl model convert ./Llama-3.2-1B llama-1b-q4_k_m.gguf --type q4_k_m\n"
     "  hpctl model convert big-00001-of-00003.gguf whole.gguf --type q8_0 --threads 8\n"
     "  hpctl model convert demo.gguf demo-bf16.gguf --type bf16 --overwrite -o json",
     options, run_convert, false},
    {0},
};
