#include "coordinator/gateway/openai.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/openai_json.h"

enum { RETRY_AFTER_S = 1 };

/* ---- errors ---- */

int openai_status_of(int rc)
{
    switch (rc) {
    case HP_ENOENT: return 404;
    case HP_EDENIED: return 403;
    case HP_EEXIST: return 422;
    case HP_EBUSY:
    case HP_ERATE:
    case HP_EQUOTA: return 429;
    case HP_EINVAL:
    case HP_EPARSE:
    case HP_EUNSUPPORTED:
    case HP_ELIMIT:
    case HP_EUSAGE: return 400;
    case HP_EBUG: return 500;
    case HP_ETIMEOUT: return 504;
    default:
        return 503; /* links, devices, disks, memory, and deployments that end: all of it passes */
    }
}

const char *openai_model_code(int rc)
{
    return rc == HP_ENOENT ? "model_not_found" : rc == HP_EDENIED ? "model_not_allowed" : NULL;
}

/* A refusal in the words of who sent the body: which field it is of, and its text, where that
 * begins with a field and a colon. One whose text alone names the field gets it as param. */
static void refusal_rename(const struct dialect *d, const char **message, const char **param,
                           struct buffer *room)
{
    static const char most[] = "max_tokens";
    if (!*param && strncmp(*message, "max_tokens: ", sizeof most + 1) == 0)
        *param = most;
    const struct field_name *n = *param ? d->names : NULL, *of = n;
    while (n && n->there && strncmp(*message, n->here, strlen(n->here)) != 0)
        n++;
    if (n && n->there && strchr(":.", (*message)[strlen(n->here)])) {
        buffer_printf(room, "%s%s", n->there, *message + strlen(n->here));
        *message = room->failed ? *message : buffer_cstr(room);
    }
    while (of && of->there && strcmp(of->here, *param) != 0)
        of++;
    *param = of && of->there ? of->there : *param;
}

void openai_error_as(const struct dialect *d, struct http_exchange *x, int http_status,
                     uint32_t retry_after_s, const char *message, const char *param,
                     const char *code)
{
    struct buffer text = {0}, renamed = {0};
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%u", retry_after_s);
    refusal_rename(d, &message, &param, &renamed);
    if (http_status == 429 || http_status == 503)
        http_header(x, "Retry-After", seconds);
    d->error(&text, http_status, message, param, code);
    http_reply(x, http_status, "application/json", buffer_cstr(&text), text.failed ? 0 : text.size);
    buffer_free(&text);
    buffer_free(&renamed);
}

/* Clients read errors in the shape of the API whose path they asked, also where there is nothing.
 */
static const struct dialect *dialect_of_path(const char *path)
{
    bool kserve = path && strncmp(path, "/v2", 3) == 0 && (!path[3] || path[3] == '/');
    if (kserve || /* {"error": TEXT} is both's */
        (path && strncmp(path, "/api/", 5) == 0 && strncmp(path, "/api/hp/", 8) != 0))
        return &dialect_ollama_chat;
    return path && strncmp(path, "/v1/messages", 12) == 0 ? &dialect_messages : &dialect_openai;
}

void openai_error_after(struct http_exchange *x, int http_status, uint32_t retry_after_s,
                        const char *message, const char *param, const char *code)
{
    openai_error_as(dialect_of_path(http_request_of(x)->path), x, http_status, retry_after_s,
                    message, param, code);
}

void openai_error(struct http_exchange *x, int http_status, const char *message, const char *param,
                  const char *code)
{
    openai_error_after(x, http_status, RETRY_AFTER_S, message, param, code);
}

void openai_reply_json(struct http_exchange *x, int http_status, struct buffer *document)
{
    if (document->failed)
        openai_error(x, 503, "no memory for the answer: try again later", NULL,
                     status_word(HP_ENOMEM));
    else
        http_reply(x, http_status, "application/json", document->data, document->size);
    buffer_free(document);
}

/* ---- why not ---- */

uint32_t openai_retry_after_s(const struct requests *r, const char *client, const char *model,
                              uint32_t otherwise)
{
    struct request_model now;
    struct err ignored;
    return model && r->find(r->ctx, client, model, &now, &ignored) == 0 ? now.retry_after_s
                                                                        : otherwise;
}

int openai_not_serving(const struct request_model *m, struct err *e)
{
    bool told = m->state_text && *m->state_text;
    return err_set(e, HP_ESTALE, "model \"%s\" does not serve now (%s)%s%s", m->name, m->state,
                   told ? ": " : "", told ? m->state_text : "");
}
