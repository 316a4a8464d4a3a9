/* Runs an ONNX model on one core as often as it is told to: bench/onnx.py measures it beside
 * onnxruntime. `onnx MODEL.onnx IN.npz PREFIX`: for every line "N" on standard input it runs N
 * times and prints the processor time of each, in microseconds. `PREFIX` stands before the names of
 * the inputs in the .npz. With "check OUT.npz" it writes what it made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/engine/network/network_engine.h"
#include "model/files/npz.h"

static int run_failed(const struct err *e)
{
    fprintf(stderr, "onnx: %s\n", e->text);
    return 1;
}

static double thread_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

struct bench_model {
    struct network_engine *engine;
    const struct onnx *o;
    struct npz given;
    const struct ndarray *inputs[16];
    struct ndarray outputs[16];
};

static int model_prepare(struct bench_model *m, char **argv, struct err *e)
{
    struct onnx_network *n;
    char name[512];
    int rc = network_open(argv[1], 1ull << 36, &n, e);
    if (rc < 0)
        return rc;
    m->o = network_onnx(n);
    if (m->o->n_inputs > 16 || m->o->n_outputs > 16) {
        network_close(&n);
        return err_set(e, HP_ELIMIT, "more than 16 inputs or outputs");
    }
    rc = network_engine_open(&n, NULL, NULL, &m->engine, e);
    rc = rc < 0 ? rc : npz_read(argv[2], &m->given, e);
    for (int i = 0; rc == 0 && i < m->o->n_inputs; i++) {
        snprintf(name, sizeof name, "%s%s", argv[3], m->o->values[m->o->inputs[i]].name);
        m->inputs[i] = npz_find(&m->given, name);
        if (!m->inputs[i])
            rc = err_set(e, HP_EINVAL, "%s has no array %s", argv[2], name);
    }
    return rc < 0 ? rc : network_engine_run(m->engine, 1, m->inputs, m->outputs, e);
}

static int outputs_write(struct bench_model *m, const char *path, struct err *e)
{
    struct npz made = {0};
    int rc = 0;
    for (int i = 0; i < m->o->n_outputs && rc == 0; i++) {
        struct ndarray copy = m->outputs[i];
        copy.owned = false;
        rc = npz_add(&made, m->o->values[m->o->outputs[i]].name, &copy, e);
    }
    rc = rc < 0 ? rc : npz_write(path, &made, e);
    npz_free(&made);
    return rc;
}

int main(int argc, char **argv)
{
    struct bench_model m = {0};
    struct err e = {0};
    char line[4096];
    if (argc != 4) {
        fprintf(stderr, "usage: onnx MODEL.onnx IN.npz PREFIX\n");
        return 2;
    }
    int rc = model_prepare(&m, argv, &e);
    while (rc == 0 && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "check ", 6) == 0) {
            rc = outputs_write(&m, line + 6, &e);
            printf("done\n");
        }
        for (int n = atoi(line); n > 0 && rc == 0; n--) {
            double from = thread_us();
            rc = network_engine_run(m.engine, 1, m.inputs, m.outputs, &e);
            printf("%.2f ", thread_us() - from);
        }
        printf("\n");
        fflush(stdout);
    }
    for (int i = 0; i < 16; i++)
        ndarray_free(&m.outputs[i]);
    npz_free(&m.given);
    network_engine_close(&m.engine);
    return rc < 0 ? run_failed(&e) : 0;
}
