/*
 * tests/fuzz/replay: runs a fuzz target on files that were found earlier. With no argument: the target's corpus,
 * tests/fuzz/corpus/NAME and tests/fuzz/found/NAME; otherwise the named files. Prints one line for each directory or
 * file.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return -1;
    }
    size_t capacity = 1 << 16, size = 0, got;
    uint8_t *bytes = malloc(capacity);
    while (bytes != NULL && (got = fread(bytes + size, 1, capacity - size, file)) > 0) {
        size += got;
        if (size == capacity) {
            uint8_t *more = realloc(bytes, capacity *= 2);
            if (more == NULL)
                free(bytes);
            bytes = more;
        }
    }
    fclose(file);
    if (bytes == NULL)
        return -1;
    uint8_t *exact = malloc(size > 0 ? size : 1); /* so that a sanitizer sees reading one byte too many */
    if (exact != NULL) {
        memcpy(exact, bytes, size);
        LLVMFuzzerTestOneInput(exact, size);
    }
    free(exact);
    free(bytes);
    return 0;
}

static void replay_directory(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL)
        return;
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char file[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (replay_file(file) != 0)
            exit(1);
        count++;
    }
    closedir(directory);
    printf("ok - %s: %zu inputs\n", path, count);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        int status = 0;
        for (int i = 1; i < argc; i++)
            status |= replay_file(argv[i]) != 0;
        return status;
    }
    const char *name = strrchr(argv[0], '/') != NULL ? strrchr(argv[0], '/') + 1 : argv[0];
    static const char *const directories[] = {"corpus", "found"};
    for (size_t i = 0; i < 2; i++) {
        char path[1024];
        snprintf(path, sizeof path, "tests/fuzz/%s/%s", directories[i], name + strlen("fuzz_"));
        replay_directory(path);
    }
    return 0;
}
