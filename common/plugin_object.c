#include "common/plugin_object.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024 };

/* The folder of the program, and what lies there. */
static void path_beside(const char *folder, const char *file, char *out)
{
    char self[PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *end = strrchr(self, '/');
    if (end)
        *end = '\0';
    snprintf(out, PATH_BYTES, "%s/%s%s", end ? self : ".", folder, file);
}

static void *path_load(const char *path, char *said, size_t size)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        snprintf(said, size, "%s", dlerror());
    return object;
}

/* False: in none of our folders. */
static bool path_find(const char *file, char *path)
{
    static const char *const folders[] = {"", "../lib/hodgepodge/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        path_beside(folders[i], file, path);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

void *plugin_object_open(const char *file, const char *variable, char *said, size_t size)
{
    const char *given = getenv(variable);
    char path[PATH_BYTES];
    if (given || path_find(file, path))
        return path_load(given ? given : path, said, size);
    void *object = path_load(file, said, size);
    if (!object)
        snprintf(said, size, "%s is neither beside the program nor in its library folder", file);
    return object;
}

bool plugin_object_is_there(const char *file, const char *variable)
{
    char path[PATH_BYTES];
    return getenv(variable) || path_find(file, path);
}
