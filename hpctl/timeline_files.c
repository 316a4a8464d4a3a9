#include "hpctl/timeline_files.h"

#include "common/fs.h"

static int file_save(const char *file, int (*write)(const struct timeline *, struct buffer *),
                     const struct timeline *t, struct err *e)
{
    struct buffer b = {0};
    b.failed = write(t, &b) < 0 || b.failed;
    return fs_buffer_save(file, &b, e);
}

int timeline_save(const struct timeline *t, const char *svg, const char *trace, struct err *e)
{
    int rc = svg ? file_save(svg, timeline_write_svg, t, e) : 0;
    if (rc == 0 && trace)
        rc = file_save(trace, timeline_write_trace, t, e);
    return rc;
}
