#include "hpctl/plan_report.h"

#include <stdlib.h>
#include <string.h>

#include "common/escape.h"
#include "common/fs.h"
#include "hpctl/shown.h"

static const char page_head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<style>\n"
    "body { margin: 0; background: #f6f7f8; color: #1b1f24; font: 14px/1.5 system-ui, sans-serif; "
    "font-variant-numeric: tabular-nums; color-scheme: light; }\n"
    "main { max-width: 1260px; margin: 0 auto; padding: 24px 20px 60px; }\n"
    "h1 { font-size: 20px; margin: 0 0 12px; }\nh2 { font-size: 15px; margin: 28px 0 8px; }\n"
    "dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 8px; "
    "margin: 0; }\n"
    "dl div { background: #fff; border: 1px solid #dcdfe3; border-radius: 8px; padding: 8px 12px; "
    "}\n"
    "dt { color: #56606c; font-size: 12.5px; }\ndd { margin: 0; font-size: 18px; font-weight: 600; "
    "}\n"
    ".box { overflow-x: auto; background: #fff; border: 1px solid #dcdfe3; border-radius: 8px; }\n"
    "table { border-collapse: collapse; width: 100%; font-size: 13px; }\n"
    "th, td { text-align: left; padding: 5px 12px; border-top: 1px solid #dcdfe3; font-weight: "
    "400; vertical-align: top; }\n"
    "thead th { border-top: 0; background: #eef0f2; color: #56606c; font-size: 12px; }\n"
    "svg { display: block; }\n"
    "pre { padding: 12px; margin: 0; font: 12px/1.4 ui-monospace, monospace; }\n"
    "summary { cursor: pointer; margin: 24px 0 8px; }\n"
    "code { font: 12px ui-monospace, monospace; overflow-wrap: anywhere; }\n"
    "</style>\n";

static void text_write(struct buffer *out, const char *tag, const char *text)
{
    buffer_printf(out, "<%s>", tag);
    escape_xml(out, text);
    buffer_printf(out, "</%s>", tag);
}

static bool key_ends(const char *key, const char *ending)
{
    size_t n = strlen(key), m = strlen(ending);
    return n >= m && strcmp(key + n - m, ending) == 0;
}

/* With as many digits as plans are compared by. */
static struct shown fine_seconds_shown(double s)
{
    return s >= 1      ? shown_of("%.4g s", s)
           : s >= 1e-3 ? shown_of("%.4g ms", s * 1e3)
                       : shown_of("%.4g us", s * 1e6);
}

/* A number by the unit that its key ends in. */
static struct shown number_shown(const char *key, double v)
{
    if (key_ends(key, "_per_s"))
        return shown_of("%.4g /s", v);
    if (key_ends(key, "_s"))
        return fine_seconds_shown(v);
    if (key_ends(key, "_bytes"))
        return shown_bytes(v);
    return key_ends(key, "_j") ? shown_of("%.4g J", v) : shown_of("%.6g", v);
}

/* "time_to_first_token_s" as people write it: without underscores and unit. */
static struct shown key_shown(const char *key)
{
    static const char *const units[] = {"_per_s", "_bytes", "_s", "_j"};
    static const char *const words[] = {" a second", "", "", ""};
    struct shown out = shown_of("%.60s", key);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (key_ends(out.s, units[i])) {
            out.s[strlen(out.s) - strlen(units[i])] = '\0';
            out = shown_of("%.60s%s", out.s, words[i]);
            break;
        }
    for (char *c = out.s; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    return out;
}

/* A part that is scrolled where it is wider than the page. */
static void box_begin(struct buffer *out, const char *name)
{
    buffer_printf(out, "<div class=\"box\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">",
                  name);
}

/* ---- what it promises ---- */

static void fact_write(struct buffer *out, const char *name, const char *value)
{
    buffer_printf(out, "<div>");
    text_write(out, "dt", name);
    text_write(out, "dd", value);
    buffer_printf(out, "</div>\n");
}

static void facts_write(struct buffer *out, const json_t *plan)
{
    const char *key;
    json_t *value;
    const json_t *solver = json_object_get(plan, "solver");
    buffer_printf(out, "<dl>\n");
    json_object_foreach(json_object_get(plan, "predicted"), key, value)
    {
        if (json_is_number(value))
            fact_write(out, key_shown(key).s, number_shown(key, json_number_value(value)).s);
    }
    fact_write(out, "planned by", string_member(solver, "method"));
    if (json_is_number(json_object_get(solver, "seconds")))
        fact_write(out, "planned in", shown_seconds(number_member(solver, "seconds")).s);
    if (json_is_number(json_object_get(solver, "gap")))
        fact_write(out, "at most from the optimum",
                   shown_of("%.2f %%", 100 * number_member(solver, "gap")).s);
    buffer_printf(out, "</dl>\n");
}

/* ---- tables ---- */

static void table_begin(struct buffer *out, const char *name, const char *const *heads)
{
    text_write(out, "h2", name);
    buffer_printf(out, "\n");
    box_begin(out, name);
    buffer_printf(out, "<table><thead><tr>");
    for (; *heads; heads++)
        text_write(out, "th", *heads);
    buffer_printf(out, "</tr></thead><tbody>\n");
}

static void table_end(struct buffer *out)
{
    buffer_printf(out, "</tbody></table></div>\n");
}

static struct shown layers_shown(const json_t *stage)
{
    const json_t *range = json_object_get(stage, "layers");
    return shown_of("%lld-%lld", (long long)json_integer_value(json_array_get(range, 0)),
                    (long long)json_integer_value(json_array_get(range, 1)) - 1);
}

/* One device, or those over which a tensor-parallel stage goes. */
static void stage_device_write(struct buffer *out, const json_t *stage)
{
    const json_t *many = json_object_get(stage, "devices");
    size_t i;
    json_t *one;
    buffer_printf(out, "<td>");
    if (!json_is_array(many))
        escape_xml(out, string_member(stage, "device"));
    json_array_foreach(json_is_array(many) ? many : NULL, i, one)
    {
        escape_xml(out, i ? " + " : "");
        escape_xml(out, json_is_string(one) ? json_string_value(one) : "");
    }
    buffer_printf(out, "</td>");
}

static void pipeline_write(struct buffer *out, const json_t *plan)
{
    static const char *const heads[] = {"stage", "device", "layers", "computes", "memory", NULL};
    size_t i;
    json_t *stage, *slice;
    table_begin(out, "What goes where", heads);
    json_array_foreach(json_object_get(plan, "stages"), i, stage)
    {
        buffer_printf(out, "<tr><td>%zu</td>", i);
        stage_device_write(out, stage);
        text_write(out, "td", layers_shown(stage).s);
        text_write(out, "td", fine_seconds_shown(number_member(stage, "compute_s")).s);
        text_write(out, "td", shown_bytes(number_member(stage, "memory_bytes")).s);
        buffer_printf(out, "</tr>\n");
    }
    table_end(out);
    if (!json_array_size(json_object_get(plan, "slices")))
        return;
    buffer_printf(out, "<p>Slices of a prompt, in tokens:");
    json_array_foreach(json_object_get(plan, "slices"), i, slice)
        buffer_printf(out, " %s", shown_value(slice).s);
    buffer_printf(out, "</p>\n");
}

static void pool_write(struct buffer *out, const json_t *model, size_t number,
                       const json_t *pipeline)
{
    size_t i;
    json_t *stage;
    json_array_foreach(json_object_get(pipeline, "stages"), i, stage)
    {
        buffer_printf(out, "<tr>");
        text_write(out, "td", string_member(model, "name"));
        text_write(out, "td", shown_of("%zu.%zu", number, i).s);
        text_write(out, "td", layers_shown(stage).s);
        text_write(
            out, "td",
            shown_of("%s of %s", shown_member(stage, "devices").s, string_member(stage, "kind")).s);
        text_write(
            out, "td",
            shown_of("%s x 1/%s", shown_member(stage, "count").s, shown_member(stage, "share").s)
                .s);
        text_write(out, "td", shown_member(pipeline, "batch").s);
        text_write(out, "td", fine_seconds_shown(number_member(stage, "compute_s")).s);
        text_write(out, "td", shown_of("%.1f", number_member(pipeline, "throughput_per_s")).s);
        buffer_printf(out, "</tr>\n");
    }
}

static void pools_write(struct buffer *out, const json_t *plan)
{
    static const char *const heads[] = {"model",    "pipeline.stage", "layers",
                                        "devices",  "shares",         "batch",
                                        "computes", "requests/s",     NULL};
    size_t i, k;
    json_t *model, *pipeline;
    table_begin(out, "What goes where", heads);
    json_array_foreach(json_object_get(plan, "models"), i, model)
        json_array_foreach(json_object_get(model, "pipelines"), k, pipeline)
            pool_write(out, model, k, pipeline);
    table_end(out);
}

static void coldstart_write(struct buffer *out, const json_t *plan)
{
    static const char *const heads[] = {"step", "device", "parameters", "operators", NULL};
    size_t i;
    json_t *part;
    table_begin(out, "What runs where", heads);
    json_array_foreach(json_object_get(plan, "subgraphs"), i, part)
    {
        bool host = strcmp(string_member(part, "mode"), "host") == 0;
        buffer_printf(out, "<tr><td>%zu</td>", i);
        text_write(out, "td", shown_member(part, "device").s);
        text_write(out, "td", host ? "read in place from host memory" : "copied to the device");
        text_write(out, "td", shown_of("%zu", json_array_size(json_object_get(part, "nodes"))).s);
        buffer_printf(out, "</tr>\n");
    }
    table_end(out);
}

/* What was weighed is predicted in the unit that the kind of plan is judged by. */
static void why_write(struct buffer *out, const json_t *plan)
{
    static const char *const heads[] = {"candidate", "predicted", "why", NULL};
    bool pools = strcmp(string_member(plan, "kind"), "pools") == 0;
    size_t i;
    json_t *row;
    if (!json_array_size(json_object_get(plan, "why")))
        return;
    table_begin(out, "What else was weighed", heads);
    json_array_foreach(json_object_get(plan, "why"), i, row)
    {
        const json_t *predicted = json_object_get(row, "predicted");
        double v = json_number_value(predicted);
        buffer_printf(out, "<tr>");
        text_write(out, "td", string_member(row, "candidate"));
        text_write(out, "td",
                   !json_is_number(predicted) ? "-"
                   : pools                    ? shown_of("%.1f /s", v).s
                                              : fine_seconds_shown(v).s);
        text_write(out, "td", string_member(row, "reason"));
        buffer_printf(out, "</tr>\n");
    }
    table_end(out);
}

static void inputs_write(struct buffer *out, const json_t *plan)
{
    static const char *const heads[] = {"file", "SHA-256", NULL};
    size_t i;
    json_t *input;
    if (!json_array_size(json_object_get(plan, "inputs")))
        return;
    table_begin(out, "What it was made from", heads);
    json_array_foreach(json_object_get(plan, "inputs"), i, input)
    {
        buffer_printf(out, "<tr>");
        text_write(out, "td", string_member(input, "name"));
        buffer_printf(out, "<td>");
        text_write(out, "code", string_member(input, "sha256"));
        buffer_printf(out, "</td></tr>\n");
    }
    table_end(out);
}

static void json_write(struct buffer *out, const json_t *plan)
{
    char *text = json_dumps(plan, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    out->failed |= !text;
    buffer_printf(out, "<details><summary>The plan as hpctl reads it</summary>\n");
    box_begin(out, "The plan as JSON");
    buffer_printf(out, "<pre>");
    escape_xml(out, text ? text : "");
    buffer_printf(out, "</pre></div></details>\n");
    free(text);
}

/* ---- the page ---- */

static const struct {
    const char *kind;
    void (*write)(struct buffer *out, const json_t *plan);
} plan_kinds[] = {
    {"pipeline", pipeline_write}, {"pools", pools_write}, {"coldstart", coldstart_write}};

int plan_report_save(const char *file, const char *title, const json_t *plan,
                     struct buffer *picture, struct err *e)
{
    struct buffer out = {0};
    const char *kind = string_member(plan, "kind");
    buffer_append(&out, page_head, sizeof page_head - 1);
    text_write(&out, "title", title);
    buffer_printf(&out, "\n</head>\n<body>\n<main>\n");
    text_write(&out, "h1", title);
    buffer_printf(&out, "\n");
    facts_write(&out, plan);
    text_write(&out, "h2", "How it runs");
    buffer_printf(&out, "\n");
    box_begin(&out, "How it runs");
    buffer_printf(&out, "\n");
    buffer_append(&out, picture->data, picture->size);
    buffer_printf(&out, "</div>\n");
    for (size_t i = 0; i < sizeof plan_kinds / sizeof *plan_kinds; i++)
        if (strcmp(kind, plan_kinds[i].kind) == 0)
            plan_kinds[i].write(&out, plan);
    why_write(&out, plan);
    inputs_write(&out, plan);
    json_write(&out, plan);
    buffer_printf(&out, "</main>\n</body>\n</html>\n");
    out.failed |= picture->failed;
    buffer_free(picture);
    return fs_buffer_save(file, &out, e);
}

int plan_report_save_timeline(const char *file, const json_t *plan, const struct timeline *t,
                              struct err *e)
{
    struct buffer picture = {0};
    int rc = timeline_write_svg(t, &picture);
    if (rc < 0) {
        buffer_free(&picture);
        return err_set(e, rc, "out of memory while drawing");
    }
    return plan_report_save(file, t->title ? t->title : "A plan", plan, &picture, e);
}
