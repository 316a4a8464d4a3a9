/* Files that people write, as YAML or JSON: any bytes. What is read is JSON, and JSON that is read
 * is read again as the same. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/fs.h"
#include "hpctl/yaml_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int text_load(const void *data, size_t size, json_t **out)
{
    char path[40];
    struct err e = {0};
    int fd = memfd_create("yaml", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = yaml_json_load(path, out, &e);
    if ((rc == 0) != (*out != NULL) || (rc < 0 && !e.text[0]))
        abort();
    close(fd);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root, *again;
    if (text_load(data, size, &root) < 0)
        return 0;
    char *text = json_dumps(root, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    if (!text)
        abort();
    if (text_load(text, strlen(text), &again) == 0 && json_typeof(root) != json_typeof(again))
        abort();
    json_decref(again);
    json_decref(root);
    free(text);
    return 0;
}
