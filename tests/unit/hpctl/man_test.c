/* Manual pages: one for every verb, with all that its help says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fs.h"
#include "hpctl/command_man.h"
#include "hpctl/verbs.h"
#include "tests/test.h"

TEST(every_verb_has_a_page_in_the_folder_with_all_its_options)
{
    char folder[] = "/tmp/hp-man-XXXXXX", file[200], command[100];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(command_man_write(command_tables, folder, NULL), 0);
    for (const struct command *const *t = command_tables; *t; t++)
        for (const struct command *c = *t; c->path; c++) {
            struct buffer page = {0};
            char name[COMMAND_MAN_NAME];
            command_man_name(c->path, name);
            assert_null(strchr(name, ' '));
            snprintf(file, sizeof file, "%s/%s.1", folder, name);
            assert_int_equal(fs_file_read(file, 1 << 20, &page, NULL), 0);
            assert_non_null(strstr(buffer_cstr(&page), c->path));
            for (const struct command_option *o = c->options; o && o->name; o++) {
                char option[100] = "\\fB\\-\\-";
                for (const char *p = o->name; *p; p++)
                    snprintf(option + strlen(option), sizeof option - strlen(option),
                             *p == '-' ? "\\-" : "%c", *p);
                if (!strstr(buffer_cstr(&page), option))
                    fail_msg("%s lacks --%s", name, o->name);
            }
            buffer_free(&page);
        }
    snprintf(file, sizeof file, "%s/hpctl.1", folder);
    assert_int_equal(access(file, R_OK), 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

TEST(the_overview_names_every_verb)
{
    struct buffer page = {0};
    command_man_overview(command_tables, &page);
    for (const struct command *const *t = command_tables; *t; t++)
        for (const struct command *c = *t; c->path; c++) {
            char line[100];
            snprintf(line, sizeof line, "\n.B %s\n", c->path);
            assert_non_null(strstr(buffer_cstr(&page), line));
        }
    buffer_free(&page);
}

TEST(texts_cannot_be_taken_for_requests)
{
    struct buffer page = {0};
    const struct command c = {.path = "x",
                              .summary = "a-b \\ c",
                              .details = ".TH evil\n'so /etc/passwd",
                              .examples = "  hpctl x"};
    command_man_verb(&c, &page);
    assert_non_null(strstr(buffer_cstr(&page), "a\\-b \\e c"));
    assert_non_null(strstr(buffer_cstr(&page), "\n\\&.TH evil\n\\&'so"));
    buffer_free(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_verb_has_a_page_in_the_folder_with_all_its_options),
        cmocka_unit_test(the_overview_names_every_verb),
        cmocka_unit_test(texts_cannot_be_taken_for_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
