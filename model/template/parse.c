/* Statements of templates. */
#include "model/template/parse.h"

#include <string.h>

#include "model/template/expression.h"
#include "model/template/primary.h"

static int parse_statements(struct parser *p, const char *const *ends, struct node **list);

static int expect_block_end(struct parser *p)
{
    if (p->at->kind == TOKEN_BLOCK_END) {
        p->at++;
        return 0;
    }
    return parse_fail(p, HP_EPARSE, "\"%%}\" is expected where \"%.*s\" stands",
                      (int)(p->at->text.size < 40 ? p->at->text.size : 40), p->at->text.data);
}

/* "endfor %}" and the like. */
static int expect_end_tag(struct parser *p, const char *name)
{
    if (!parse_skip_name(p, name))
        return parse_fail(p, HP_EPARSE, "{%% %s %%} is expected", name);
    return expect_block_end(p);
}

/* Statements up to {% NAME, whose name is the next token. */
static int parse_until(struct parser *p, const char *end, struct node **list)
{
    const char *const ends[] = {end, NULL};
    return parse_statements(p, ends, list);
}

/* A body up to and with its end tag. */
static int parse_body(struct parser *p, const char *end, struct node **list)
{
    int rc = expect_block_end(p);
    if (rc == 0)
        rc = parse_until(p, end, list);
    return rc < 0 ? rc : expect_end_tag(p, end);
}

static int parse_if(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node **tail = &n->children;
    bool otherwise = false;
    do {
        struct node *branch = parse_node(p, NODE_BRANCH);
        if (!branch)
            return HP_ENOMEM;
        otherwise = n->children && parse_is_name(p, "else");
        if (n->children)
            p->at++; /* elif or else */
        if (!otherwise && !(branch->a = parse_tuple(p, false)))
            return HP_EPARSE;
        int rc = expect_block_end(p);
        if (rc == 0)
            rc = parse_statements(p, ends, &branch->children);
        if (rc < 0)
            return rc;
        *tail = branch;
        tail = &branch->next;
    } while (!otherwise && !parse_is_name(p, "endif"));
    return expect_end_tag(p, "endif");
}

static int parse_for(struct parser *p, struct node *n)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    n->a = parse_target(p);
    if (!n->a)
        return HP_EPARSE;
    if (!parse_skip_name(p, "in"))
        return parse_fail(p, HP_EPARSE, "\"in\" is expected in a for");
    n->b = parse_tuple(p, false);
    if (!n->b || (parse_skip_name(p, "if") && !(n->c = parse_expression(p))))
        return HP_EPARSE;
    if (parse_is_name(p, "recursive"))
        return parse_fail(p, HP_EUNSUPPORTED, "recursive loops are not supported");
    int rc = expect_block_end(p);
    p->loops++;
    if (rc == 0)
        rc = parse_statements(p, ends, &n->children);
    p->loops--;
    if (rc == 0 && parse_skip_name(p, "else")) {
        rc = expect_block_end(p);
        if (rc == 0)
            rc = parse_until(p, "endfor", &n->others);
    }
    return rc < 0 ? rc : expect_end_tag(p, "endfor");
}

static int parse_set(struct parser *p, struct node *n)
{
    n->a = parse_target(p);
    if (!n->a)
        return HP_EPARSE;
    if (parse_skip_op(p, '=')) {
        n->b = parse_tuple(p, true);
        return n->b ? expect_block_end(p) : HP_EPARSE;
    }
    n->kind = NODE_SET_BLOCK;
    if (parse_is_op(p, '|') && !(n->b = parse_filters(p, NULL)))
        return HP_EPARSE;
    return parse_body(p, "endset", &n->children);
}

static int parse_parameters(struct parser *p, struct node *n)
{
    struct node **tail = &n->children;
    int rc = parse_expect_op(p, '(', "\"(\"");
    while (rc == 0 && !parse_skip_op(p, ')')) {
        if (n->children && (rc = parse_expect_op(p, ',', "\",\" or \")\"")) < 0)
            break;
        struct node *parameter = parse_node(p, NODE_PARAMETER);
        if (!parameter || p->at->kind != TOKEN_NAME)
            return parse_fail(p, HP_EPARSE, "a macro's parameter needs a name");
        parameter->text = p->at++->text;
        if (parse_skip_op(p, '=') && !(parameter->a = parse_expression(p)))
            return HP_EPARSE;
        *tail = parameter;
        tail = &parameter->next;
    }
    return rc;
}

static int parse_macro_body(struct parser *p, struct node *n, const char *end)
{
    int loops = p->loops, names = p->macro_names;
    p->loops = p->macro_names = 0;
    int rc = parse_body(p, end, &n->others);
    n->op = p->macro_names;
    p->loops = loops;
    p->macro_names |= names;
    return rc;
}

static int parse_macro(struct parser *p, struct node *n)
{
    if (p->at->kind != TOKEN_NAME)
        return parse_fail(p, HP_EPARSE, "a macro needs a name");
    n->text = p->at++->text;
    int rc = parse_parameters(p, n);
    return rc < 0 ? rc : parse_macro_body(p, n, "endmacro");
}

/* {% call(a, b) macro(...) %}: the body is a macro named `caller`. */
static int parse_call_block(struct parser *p, struct node *n)
{
    n->b = parse_node(p, NODE_MACRO);
    if (!n->b)
        return HP_ENOMEM;
    n->b->text = text_of("caller");
    int rc = parse_is_op(p, '(') ? parse_parameters(p, n->b) : 0;
    n->a = rc < 0 ? NULL : parse_expression(p);
    if (rc == 0 && n->a && n->a->kind != NODE_CALL)
        return parse_fail(p, HP_EPARSE, "expected call");
    return n->a ? parse_macro_body(p, n->b, "endcall") : HP_EPARSE;
}

static int parse_with(struct parser *p, struct node *n)
{
    struct node **tail = &n->children;
    while (p->at->kind != TOKEN_BLOCK_END) {
        if (n->children && parse_expect_op(p, ',', "\",\"") < 0)
            return HP_EPARSE;
        struct node *set = parse_node(p, NODE_SET);
        if (!set || !(set->a = parse_target(p)) || parse_expect_op(p, '=', "\"=\"") < 0 ||
            !(set->b = parse_expression(p)))
            return HP_EPARSE;
        *tail = set;
        tail = &set->next;
    }
    return parse_body(p, "endwith", &n->others);
}

static int parse_filter_block(struct parser *p, struct node *n)
{
    n->b = parse_filter(p, NULL);
    n->b = n->b ? parse_filters(p, n->b) : NULL;
    return n->b ? parse_body(p, "endfilter", &n->children) : HP_EPARSE;
}

static int parse_jump(struct parser *p, struct node *n)
{
    if (p->loops == 0)
        return parse_fail(p, HP_EPARSE, "%s outside of a loop",
                          n->kind == NODE_BREAK ? "break" : "continue");
    return expect_block_end(p);
}

static int parse_generation(struct parser *p, struct node *n)
{
    return parse_body(p, "endgeneration", &n->children);
}

static const struct {
    const char *name;
    enum node_kind kind;
    int (*parse)(struct parser *p, struct node *n);
} statements[] = {
    {"if", NODE_IF, parse_if},
    {"for", NODE_FOR, parse_for},
    {"set", NODE_SET, parse_set},
    {"macro", NODE_MACRO, parse_macro},
    {"call", NODE_CALL_BLOCK, parse_call_block},
    {"with", NODE_WITH, parse_with},
    {"filter", NODE_FILTER_BLOCK, parse_filter_block},
    {"generation", NODE_BODY, parse_generation},
    {"break", NODE_BREAK, parse_jump},
    {"continue", NODE_CONTINUE, parse_jump},
};

static int parse_tag(struct parser *p, struct node **out)
{
    struct text name = p->at->text;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!parse_skip_name(p, statements[i].name))
            continue;
        struct node *n = parse_node(p, statements[i].kind);
        if (!n)
            return HP_ENOMEM;
        *out = n;
        return statements[i].parse(p, n);
    }
    return parse_fail(p, HP_EUNSUPPORTED, "the tag \"%.*s\" is not known here",
                      (int)(name.size < 40 ? name.size : 40), name.data);
}

static bool at_end_tag(const struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (p->at[1].kind == TOKEN_NAME && text_is(p->at[1].text, *ends))
            return true;
    return false;
}

static int parse_output(struct parser *p, struct node **out)
{
    struct node *n = parse_node(p, NODE_OUTPUT);
    p->at++;
    if (!n || !(n->a = parse_tuple(p, true)))
        return HP_EPARSE;
    if (p->at->kind != TOKEN_EXPRESSION_END)
        return parse_fail(p, HP_EPARSE, "\"}}\" is expected where \"%.*s\" stands",
                          (int)(p->at->text.size < 40 ? p->at->text.size : 40), p->at->text.data);
    p->at++;
    *out = n;
    return 0;
}

static int parse_statement(struct parser *p, struct node **out)
{
    if (p->at->kind == TOKEN_EXPRESSION_BEGIN)
        return parse_output(p, out);
    if (p->at->kind == TOKEN_BLOCK_BEGIN) {
        p->at++;
        return parse_tag(p, out);
    }
    struct node *n = parse_node(p, NODE_TEXT);
    if (!n)
        return HP_ENOMEM;
    n->text = p->at++->text;
    *out = n;
    return 0;
}

/* Statements up to one of the end tags, whose name is the next token then; without `ends` up to the
 * end of the template. */
static int parse_statements(struct parser *p, const char *const *ends, struct node **list)
{
    if (++p->nesting > PARSER_MAX_NESTING)
        return parse_fail(p, HP_ELIMIT, "tags are nested deeper than %d", PARSER_MAX_NESTING);
    while (p->at->kind != TOKEN_END) {
        if (p->at->kind == TOKEN_BLOCK_BEGIN && at_end_tag(p, ends)) {
            p->at++;
            p->nesting--;
            return 0;
        }
        struct node *n = NULL;
        int rc = parse_statement(p, &n);
        if (rc < 0)
            return rc;
        *list = n;
        list = &n->next;
    }
    p->nesting--;
    return ends
               ? parse_fail(p, HP_EPARSE, "the template ends where {%% %s %%} is expected", ends[0])
               : 0;
}

int template_parse(struct parser *p, struct node **body)
{
    *body = parse_node(p, NODE_BODY);
    return *body ? parse_statements(p, NULL, &(*body)->children) : HP_ENOMEM;
}
