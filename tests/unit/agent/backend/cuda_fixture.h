/* The cuda backend's plugin as the stand-in runs it (tests/cuda_on_cpu), for tests of its
 * operators.
 */
#ifndef HP_TESTS_UNIT_AGENT_BACKEND_CUDA_FIXTURE_H
#define HP_TESTS_UNIT_AGENT_BACKEND_CUDA_FIXTURE_H

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/backend/plugin.h"
#include "tests/unit/agent/backend/operator_fixture.h"
#include "tests/unit/agent/backend/weights.h"

/* What lies beside the tests: build/tests/cuda_on_cpu/NAME. */
static inline const char *standin_path(const char *name)
{
    static char path[1200];
    char self[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *end = strstr(self, "/tests/unit/");
    assert_non_null(end);
    *end = '\0';
    snprintf(path, sizeof path, "%s/tests/cuda_on_cpu/%s", self, name);
    return path;
}

static inline const struct plugin *plugin_open(void)
{
    const struct plugin *p;
    struct err e = {0};
    if (!getenv("HP_CUDA_PLUGIN"))
        setenv("HP_CUDA_PLUGIN", standin_path("libhp-cuda.so"), 1);
    if (plugin_cuda(&p, &e) < 0)
        fail_msg("%s", e.text);
    return p;
}

/* Of the plugin that is loaded; NULL: it has none, since it is no stand-in but runs on a GPU. */
static inline void *plugin_symbol(const char *name)
{
    void *object = dlopen(getenv("HP_CUDA_PLUGIN"), RTLD_NOW | RTLD_NOLOAD),
         *symbol = object ? dlsym(object, name) : NULL;
    assert_non_null(object);
    dlclose(object);
    return symbol;
}

/* Of the stand-in, which is what runs. */
static inline void *standin_symbol(const char *name)
{
    void *symbol = plugin_symbol(name);
    assert_non_null(symbol);
    return symbol;
}

static inline struct device *cuda_open(uint64_t memory_bytes)
{
    const struct device_config c = {
        .backend = "cuda", .of = plugin_open()->backend, .memory_bytes = memory_bytes};
    struct device *d = NULL;
    struct err e = {0};
    if (device_open(&c, &d, &e) < 0)
        fail_msg("%s", e.text);
    return d;
}

#endif
