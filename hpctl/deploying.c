#include "hpctl/deploying.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/manifest.h"
#include "common/names.h"
#include "hpctl/client.h"
#include "hpctl/model_manifest.h"
#include "hpctl/shown.h"
#include "hpctl/upload.h"

enum { DEPLOY_PATIENCE_MS = 600000 };

/* ---- Ctrl-C ---- */

/* What is said when hpctl is interrupted; made beforehand, since a signal's handler may only write.
 */
static struct {
    char text[600], json[600];
    size_t text_bytes, json_bytes;
} farewell;

static void on_interrupt(int which)
{
    (void)which;
    if (write(STDERR_FILENO, farewell.text, farewell.text_bytes) >= 0 && farewell.json_bytes)
        (void)!write(STDOUT_FILENO, farewell.json, farewell.json_bytes);
    _exit(130);
}

/* From here on Ctrl-C ends hpctl and says what the cluster does without it. */
static void farewell_prepare(const char *name, bool json)
{
    static const char said[] =
        "the cluster goes on with \\\"%s\\\" without hpctl, as far as it has the bytes";
    char once[300];
    struct sigaction action = {.sa_handler = on_interrupt};
    farewell.text_bytes = (size_t)snprintf(
        farewell.text, sizeof farewell.text,
        "\nhpctl: interrupted: the cluster goes on with \"%s\" without hpctl, as far as it has the "
        "bytes\n"
        "  `hpctl ps` shows it; the same command goes on with it; `hpctl undeploy %s` ends it\n",
        name, name);
    snprintf(once, sizeof once, said, name);
    farewell.json_bytes =
        json ? (size_t)snprintf(farewell.json, sizeof farewell.json,
                                "{\"error\": {\"code\": \"canceled\", \"message\": \"%s\", "
                                "\"hint\": \"`hpctl ps` shows it\"}}\n",
                                once)
             : 0;
    sigaction(SIGINT, &action, NULL);
}

/* ---- progress ---- */

/* What may have to be sent. */
struct deploying_bytes {
    const struct key_pair *keys;
    struct manifest manifest;
    struct upload *upload;
};

/* One line over all stages: the step that the slowest of them is at, bytes over all, and how far
 * each agent is. */
static void show_stages(struct deploying *d, const json_t *stages)
{
    static const char *const order[] = {"waiting", "fetching", "loading", "warming", "ready"};
    double done = 0, total = 0;
    size_t i, least = 4;
    char each[200] = "";
    json_t *s;
    json_array_foreach(stages, i, s)
    {
        const char *state = string_member(s, "state");
        for (size_t k = 0; k < 5; k++)
            if (k < least && strcmp(order[k], state) == 0)
                least = k;
    }
    json_array_foreach(stages, i, s)
    {
        double of = number_member(s, "total_bytes"), got = number_member(s, "done_bytes");
        bool here = strcmp(string_member(s, "state"), order[least]) == 0;
        size_t n = strlen(each);
        if (here && of > 0)
            snprintf(each + n, sizeof each - n, " %s %s/%s", string_member(s, "on"),
                     shown_bytes(got).s, shown_bytes(of).s);
        else
            snprintf(each + n, sizeof each - n, " %s %s", string_member(s, "on"),
                     string_member(s, "state"));
        done += here ? got : 0;
        total += here ? of : 0;
    }
    char what[240];
    snprintf(what, sizeof what, "%s:%s", order[least], each);
    progress_show_bytes(&d->bar, what, done, total);
}

static int on_progress(void *ctx, const json_t *part, struct err *e)
{
    struct deploying *d = ctx;
    const char *phase = string_member(part, "phase");
    if (strcmp(phase, "upload") == 0) {
        struct deploying_bytes *b = d->bytes;
        int rc = b->upload ? 0 : upload_open(d->path, &b->manifest, b->keys, &b->upload, e);
        return rc == 0 ? upload_send(b->upload, part, &d->bar, &d->uploaded_bytes, e) : rc;
    }
    if (json_object_get(part, "stages"))
        show_stages(d, json_object_get(part, "stages"));
    else
        progress_show(&d->bar, phase, 0, 0);
    return 0;
}

void deploying_name(const char *path, char *out, size_t size)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", path);
    size_t n = strlen(copy);
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = '\0';
    const char *slash = strrchr(copy, '/');
    char *base = slash ? copy + (slash + 1 - copy) : copy, *dot = strrchr(base, '.');
    struct stat st;
    if (dot && dot != base && stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        *dot = '\0';
    name_like(out, size, base);
}

/* ---- the question ---- */

static int deploy_ask(struct deploying *d, struct client *client, const struct buffer *manifest,
                      json_t **result, struct err *e)
{
    struct client_ask ask = {
        .verb = "deploy",
        .arguments = json_pack("{s:s, s:O}", "name", d->name, "options", d->options),
        .blob = {manifest->data, manifest->size},
        .patience_ms = DEPLOY_PATIENCE_MS,
        .progress = on_progress,
        .ctx = d,
    };
    if (!ask.arguments)
        return err_no_memory(e, "a deployment");
    if (!d->ends_with_us)
        farewell_prepare(d->name, d->json);
    int rc = client_ask(client, &ask, result, NULL, e);
    if (!d->ends_with_us)
        signal(SIGINT, SIG_DFL);
    return rc;
}

int deploying_run(struct deploying *d, struct client *client, json_t **result, struct err *e)
{
    struct buffer manifest = {0};
    struct arena arena = {0};
    struct deploying_bytes bytes = {0};
    d->bytes = &bytes;
    bytes.keys = &client_context(client)->admin;
    int rc = d->maker ? manifest_maker_finish(&d->maker, &d->bar, &manifest, e)
                      : model_manifest_make(d->path, &d->bar, &manifest, e);
    if (rc == 0)
        rc = manifest_decode(manifest.data, manifest.size, &arena, &bytes.manifest, e);
    if (rc == 0)
        rc = deploy_ask(d, client, &manifest, result, e);
    progress_end(&d->bar);
    upload_close(&bytes.upload);
    d->bytes = NULL;
    arena_free(&arena);
    buffer_free(&manifest);
    return rc;
}
