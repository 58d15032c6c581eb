/* A process that does nothing except print its memory use. */
#include <stdio.h>
#include <string.h>

int main(void)
{
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "Rss:", 4) == 0)
            fputs(line + 4, stdout);
    return 0;
}
