#include "hpctl/command_man.h"

#include <stdio.h>
#include <string.h>

#include "common/fs.h"
#include "hpctl/command_help.h"

/* ---- roff ---- */

/* Text as roff shows it: no escapes, no hyphens for minus signs, no requests at a line's start. */
static void man_text(struct buffer *out, const char *text)
{
    bool starts = true;
    for (; *text; text++) {
        if (starts && (*text == '.' || *text == '\''))
            buffer_printf(out, "\\&");
        if (*text == '\\')
            buffer_printf(out, "\\e");
        else if (*text == '-')
            buffer_printf(out, "\\-");
        else
            buffer_append(out, text, 1);
        starts = *text == '\n';
    }
}

static void man_head(struct buffer *out, const char *name, const char *summary)
{
    buffer_printf(out,
                  ".\\\" Made by `hpctl man`.\n.TH %s 1 \"\" \"Hodgepodge %s\" \"Hodgepodge\"\n"
                  ".SH NAME\n",
                  name, HP_VERSION);
    man_text(out, name);
    buffer_printf(out, " \\- ");
    man_text(out, summary);
    buffer_printf(out, "\n");
}

static void man_options(struct buffer *out, const struct command_option *list)
{
    for (; list && list->name; list++) {
        buffer_printf(out, ".TP\n");
        if (list->letter)
            buffer_printf(out, "\\fB\\-%c\\fR, ", list->letter);
        buffer_printf(out, "\\fB\\-\\-");
        man_text(out, list->name);
        buffer_printf(out, "\\fR");
        if (list->value) {
            buffer_printf(out, " \\fI");
            man_text(out, list->value);
            buffer_printf(out, "\\fR");
        }
        buffer_printf(out, "\n");
        man_text(out, list->help);
        buffer_printf(out, "\n");
    }
}

/* ---- pages ---- */

void command_man_name(const char *path, char out[COMMAND_MAN_NAME])
{
    snprintf(out, COMMAND_MAN_NAME, "hpctl-%s", path);
    for (char *p = out; *p; p++)
        if (*p == ' ')
            *p = '-';
}

void command_man_verb(const struct command *c, struct buffer *out)
{
    char name[COMMAND_MAN_NAME];
    command_man_name(c->path, name);
    man_head(out, name, c->summary);
    buffer_printf(out, ".SH SYNOPSIS\n.B hpctl %s\n", c->path);
    if (c->arguments && *c->arguments) {
        buffer_printf(out, ".I ");
        man_text(out, c->arguments);
        buffer_printf(out, "\n");
    }
    buffer_printf(out, "[options]\n");
    if (c->details) {
        buffer_printf(out, ".SH DESCRIPTION\n");
        man_text(out, c->details);
        buffer_printf(out, "\n");
    }
    buffer_printf(out, ".SH OPTIONS\n");
    man_options(out, c->options);
    man_options(out, command_common_options);
    buffer_printf(out, ".SH EXAMPLES\n.nf\n");
    man_text(out, c->examples ? c->examples : "");
    buffer_printf(out, "\n.fi\n.SH SEE ALSO\n.BR hpctl (1)\n");
}

static void man_exit_codes(struct buffer *out)
{
    static const struct {
        int code;
        const char *means;
    } codes[] = {{0, "done"},
                 {1, "failed"},
                 {2, "a command line that makes no sense"},
                 {3, "no coordinator answers"},
                 {4, "no such thing"},
                 {5, "not allowed"},
                 {6, "no plan exists, or it does not fit"},
                 {7, "its time ran out"},
                 {130, "interrupted"}};
    buffer_printf(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        buffer_printf(out, ".TP\n%d\n%s\n", codes[i].code, codes[i].means);
}

void command_man_overview(const struct command *const *tables, struct buffer *out)
{
    man_head(out, "hpctl", "serve large models on the mixed machines that people own");
    buffer_printf(out, ".SH SYNOPSIS\n.B hpctl\n.I VERB\n[options]\n.SH VERBS\n");
    for (; *tables; tables++)
        for (const struct command *c = *tables; c->path; c++) {
            char name[COMMAND_MAN_NAME];
            command_man_name(c->path, name);
            buffer_printf(out, ".TP\n.B %s\n", c->path);
            man_text(out, c->summary);
            buffer_printf(out, " (");
            man_text(out, name);
            buffer_printf(out, "(1))\n");
        }
    buffer_printf(out, ".SH OPTIONS\nOf every verb:\n");
    man_options(out, command_common_options);
    buffer_printf(out,
                  ".SH ENVIRONMENT\n"
                  ".TP\n.B HP_CONFIG_DIR\nwhere contexts are kept (default: "
                  "$XDG_CONFIG_HOME/hp, or ~/.config/hp)\n"
                  ".TP\n.B HP_API_KEY\nthe key that \\fBrun\\fR and \\fBchat\\fR send, in place of "
                  "the context's own\n"
                  ".TP\n.B HP_CA_FILE\nPEM file of whom to trust where the API speaks HTTPS, in "
                  "place of the context's own and the system's\n");
    man_exit_codes(out);
    buffer_printf(out, ".SH SEE ALSO\n.BR hp\\-agent (8),\n.BR hp\\-coordinator (8)\n");
}

static int page_save(const char *folder, const char *name, struct buffer *page, struct err *e)
{
    char file[FS_PATH_BYTES];
    snprintf(file, sizeof file, "%.3900s/%s.1", folder, name);
    return fs_buffer_save(file, page, e);
}

int command_man_write(const struct command *const *tables, const char *folder, struct err *e)
{
    struct buffer page = {0};
    int rc = fs_folder_make(folder, 0755, e);
    if (rc < 0)
        return rc;
    command_man_overview(tables, &page);
    rc = page_save(folder, "hpctl", &page, e);
    for (; rc == 0 && *tables; tables++)
        for (const struct command *c = *tables; rc == 0 && c->path; c++) {
            char name[COMMAND_MAN_NAME];
            command_man_name(c->path, name);
            command_man_verb(c, &page);
            rc = page_save(folder, name, &page, e);
        }
    return rc;
}
