/* LD_PRELOAD, with the stand-in for CUDA as HP_CUDA_PLUGIN: a UCX that knows the GPU's memory
 * (tests/ucx_device.h). What it moves is noted in the file HP_DIRECT_NOTES, a line each: what,
 * bytes, and how often the plugin has copied 64 KiB and more to the device and to the host so far.
 *
 * HP_DIRECT_STOP names a file: once it is there whoever sends from a device's memory says what it
 * has, and never sends it: its data channel stands still. */
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "tests/ucx_device.h"

static void *plugin_find(const char *name)
{
    const char *path = getenv("HP_CUDA_PLUGIN");
    void *plugin = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *found = plugin ? dlsym(plugin, name) : NULL;
    if (plugin)
        dlclose(plugin); /* as it was */
    return found;
}

static int device_reach(void *host, void *device, size_t bytes, bool to_device)
{
    int (*reach)(void *, void *, size_t, int) = plugin_find("cuda_on_cpu_reach");
    return reach ? reach(host, device, bytes, to_device) : -1;
}

static bool device_is_listed(void)
{
    return true;
}

static size_t device_header_bytes(size_t bytes)
{
    return bytes;
}

static void device_note(const char *what, size_t bytes)
{
    enum { LEAST_BYTES = 32 << 10 };
    const char *notes = getenv("HP_DIRECT_NOTES"), *stop = getenv("HP_DIRECT_STOP");
    char line[128];
    if (bytes < LEAST_BYTES)
        return;
    uint64_t (*copies)(int) = plugin_find("cuda_on_cpu_large_copies");
    int n = snprintf(line, sizeof line, "%s %zu %" PRIu64 " %" PRIu64 "\n", what, bytes,
                     copies ? copies(0) : 0, copies ? copies(1) : 0),
        fd = notes ? open(notes, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (fd >= 0 && write(fd, line, (size_t)n) != n)
        abort();
    if (fd >= 0)
        close(fd);
    while (strcmp(what, "sent") == 0 && stop && access(stop, F_OK) == 0)
        pause();
}
