#include "coordinator/gateway/origin.h"

#include <string.h>
#include <strings.h>

#include "common/host_address.h"

bool host_is_own(const char *value, const struct origin_names *names)
{
    char host[HOST_BYTES];
    if (!host_of_address(value, host, sizeof host))
        return false;
    for (int i = 0; i < names->n; i++)
        if (strcasecmp(host, names->names[i]) == 0)
            return true;
    return host_is_loopback(host);
}

bool origin_is_own(const char *value, const struct origin_names *names)
{
    if (strncasecmp(value, "http://", 7) == 0)
        return host_is_own(value + 7, names);
    return strncasecmp(value, "https://", 8) == 0 && host_is_own(value + 8, names);
}

bool origin_is_listed(const char *value, const struct origin_names *origins)
{
    for (int i = 0; i < origins->n; i++)
        if (strcasecmp(value, origins->names[i]) == 0)
            return true;
    return false;
}

bool origin_is_whole(const char *value)
{
    char host[HOST_BYTES];
    const char *rest = strncasecmp(value, "http://", 7) == 0    ? value + 7
                       : strncasecmp(value, "https://", 8) == 0 ? value + 8
                                                                : "";
    return *rest && !strpbrk(rest, "/ *,\"") && host_of_address(rest, host, sizeof host);
}
