/*
 * tools/cli/cli: shared code of the command-line tools: options, strict numbers, readable units, tables, JSON, messages,
 * colours, and the one table of exit codes.
 *
 * Private to the tools. Results go to standard output, notes and errors to standard error. Text from elsewhere
 * (descriptions, messages, file names) is escaped before it is printed. If memory is short, these functions end the program
 * with a message: they are for programs, not for a library.
 */
#ifndef AOTICACHE_TOOLS_CLI_CLI_H
#define AOTICACHE_TOOLS_CLI_CLI_H

#include "base/base.h"
#include "cache/cache.h"

#include <jansson.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>

/* ---- exit codes: name, number, text. Numbers are part of the interface and never change. ---- */

#define AOTICACHE_CLI_EXIT_LIST(X)                                                              \
    X(OK, 0, "success")                                                                         \
    X(FAILURE, 1, "something failed; the message says what")                                    \
    X(USAGE, 2, "the command line, or a value in it, is wrong")                                 \
    X(NOT_FOUND, 3, "nothing matches, or a miss, and compiling is not allowed")                 \
    X(DAMAGED, 4, "verify found damage that is still there")                                    \
    X(COMPILE, 5, "no kernel: the compile failed, or this machine or hook does not support it") \
    X(UNREADABLE, 6, "verify found no damage, but could not examine everything")                \
    X(ABSENT, 7, "the specified cache directory does not exist")

typedef enum aoticache_cli_exit {
#define AOTICACHE_CLI_EXIT_ENUM(name, number, text) AOTICACHE_CLI_EXIT_##name = number,
    AOTICACHE_CLI_EXIT_LIST(AOTICACHE_CLI_EXIT_ENUM)
#undef AOTICACHE_CLI_EXIT_ENUM
} aoticache_cli_exit;

/* ---- the command line ---- */

typedef struct aoticache_cli aoticache_cli;

/*
 * An option is declared once, in a row of a table: its name, its help, and the struct member that it sets. Parsing, help and
 * "did you mean" follow from the table.
 */
typedef enum aoticache_cli_kind {
    AOTICACHE_CLI_KIND_NONE,     /* ends a table; a program without operands */
    AOTICACHE_CLI_KIND_SET,      /* bool: set to true */
    AOTICACHE_CLI_KIND_CLEAR,    /* bool: set to false */
    AOTICACHE_CLI_KIND_TEXT,     /* const char *: the value, borrowed */
    AOTICACHE_CLI_KIND_NAME,     /* the same, but not empty */
    AOTICACHE_CLI_KIND_LIST,     /* aoticache_cli_list: all values, in order */
    AOTICACHE_CLI_KIND_INTEGER,  /* an integer of 4 or 8 bytes */
    AOTICACHE_CLI_KIND_SIZE,     /* uint64_t: bytes */
    AOTICACHE_CLI_KIND_AGE,      /* uint64_t: seconds */
    AOTICACHE_CLI_KIND_MOMENT,   /* int64_t: the wall clock in ns at that time ago; at least 1 */
    AOTICACHE_CLI_KIND_WORD,     /* an integer of 4 or 8 bytes: the position in `words` */
    AOTICACHE_CLI_KIND_FUNCTION, /* anything: `read` is called */
    AOTICACHE_CLI_KIND_TABLE, /* not an option: the rows of `table` are inserted here, with their members at this offset */
    AOTICACHE_CLI_KIND_REST, /* char **, for an operand: it and all following words, NULL-terminated */
} aoticache_cli_kind;

typedef struct aoticache_cli_option aoticache_cli_option;
struct aoticache_cli_option {
    const char *name;  /* without the dashes */
    char letter;       /* short form, 0 for none */
    const char *value; /* name of its value in the help; NULL if it takes none; "[=NAME]" if it is optional */
    const char *help;  /* may contain newlines */
    aoticache_cli_kind kind;
    size_t offset;            /* of the member in the struct */
    size_t size;              /* of the member */
    int64_t minimum, maximum; /* of INTEGER; minimum of SIZE, AGE and MOMENT, and maximum of AGE if that is not 0 */
    const char *wanted;       /* what a valid value is, for the error message: "a number from 1 on" */
    const char *const *words; /* of WORD; NULL-terminated */
    const aoticache_cli_option *table;
    /* Returns an exit code, and has printed the error if it is not OK. member: the member at `offset`. */
    int (*read)(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member);
    int id;       /* identifies the option if `read` handles several */
    bool is_rare; /* the short help shows only its name */
};

/* Options that every program has. */
extern const aoticache_cli_option aoticache_cli_common_options[];

/* The rest of a row; it checks the member's type. */
#define AOTICACHE_CLI_MEMBER(kind_, c_type, type, member) \
    .kind = (kind_), .offset = _Generic(((type *)0)->member, c_type: offsetof(type, member))
#define AOTICACHE_CLI_NUMBER(kind_, type, member)       \
    .kind = (kind_), .size = sizeof((type *)0)->member, \
    .offset = _Generic(((type *)0)->member,             \
        int32_t: offsetof(type, member),                \
        uint32_t: offsetof(type, member),               \
        int64_t: offsetof(type, member),                \
        uint64_t: offsetof(type, member))
#define AOTICACHE_CLI_SET(type, member) AOTICACHE_CLI_MEMBER(AOTICACHE_CLI_KIND_SET, bool, type, member)
#define AOTICACHE_CLI_CLEAR(type, member) AOTICACHE_CLI_MEMBER(AOTICACHE_CLI_KIND_CLEAR, bool, type, member)
#define AOTICACHE_CLI_TEXT(type, member) AOTICACHE_CLI_MEMBER(AOTICACHE_CLI_KIND_TEXT, const char *, type, member)
#define AOTICACHE_CLI_NAME(type, member, wanted_) \
    AOTICACHE_CLI_MEMBER(AOTICACHE_CLI_KIND_NAME, const char *, type, member), .wanted = (wanted_)
#define AOTICACHE_CLI_LIST(type, member) AOTICACHE_CLI_MEMBER(AOTICACHE_CLI_KIND_LIST, aoticache_cli_list, type, member)
#define AOTICACHE_CLI_INTEGER(type, member, minimum_, maximum_, wanted_)                                          \
    AOTICACHE_CLI_NUMBER(AOTICACHE_CLI_KIND_INTEGER, type, member), .minimum = (minimum_), .maximum = (maximum_), \
        .wanted = (wanted_)
#define AOTICACHE_CLI_SIZE(type, member, minimum_, wanted_) \
    AOTICACHE_CLI_MEMBER(AOTICACHE_CLI_KIND_SIZE, uint64_t, type, member), .minimum = (minimum_), .wanted = (wanted_)
#define AOTICACHE_CLI_AGE(type, member, minimum_, maximum_, wanted_)                             \
    AOTICACHE_CLI_MEMBER(AOTICACHE_CLI_KIND_AGE, uint64_t, type, member), .minimum = (minimum_), \
        .maximum = (maximum_), .wanted = (wanted_)
#define AOTICACHE_CLI_MOMENT(type, member, minimum_, wanted_) \
    AOTICACHE_CLI_MEMBER(AOTICACHE_CLI_KIND_MOMENT, int64_t, type, member), .minimum = (minimum_), .wanted = (wanted_)
#define AOTICACHE_CLI_WORD(type, member, words_) \
    AOTICACHE_CLI_NUMBER(AOTICACHE_CLI_KIND_WORD, type, member), .words = (words_)
#define AOTICACHE_CLI_FUNCTION(type, member, read_) \
    .kind = AOTICACHE_CLI_KIND_FUNCTION, .offset = offsetof(type, member), .read = (read_)
#define AOTICACHE_CLI_TABLE(type, member, table_) \
    {.kind = AOTICACHE_CLI_KIND_TABLE, .offset = offsetof(type, member), .table = (table_)}

/* Words of the command line, borrowed; NULL-terminated if there are any. */
typedef struct aoticache_cli_list {
    const char **items; /* the caller frees it with free() */
    size_t count;
} aoticache_cli_list;
void aoticache_cli_list_add(aoticache_cli_list *list, const char *word);

/* One program, or one command of a program. */
typedef struct aoticache_cli_program {
    const char *name;                    /* "aoticache run": begins every message */
    const char *help_hint;               /* "aoticache help run": named in a usage error */
    const char *usage;                   /* the words after the name in the usage line */
    const char *summary;                 /* one line */
    const char *details;                 /* printed after the options; may be NULL */
    const aoticache_cli_option *options; /* ends with {0}; the common options are added */
    /* Words that are not options: one for TEXT, any number for LIST, FUNCTION and REST; none by default. Its `wanted` is the
     * error if there is none ("a key is needed"; NULL: it may be missing), its `help` is appended to the error for an
     * unexpected second word (": one key at a time"). */
    aoticache_cli_option operand;
} aoticache_cli_program;

typedef enum aoticache_cli_color {
    AOTICACHE_CLI_COLOR_AUTO,
    AOTICACHE_CLI_COLOR_ALWAYS,
    AOTICACHE_CLI_COLOR_NEVER,
} aoticache_cli_color;

/* One run of a program: the position of the parser, and the values of the common options. */
struct aoticache_cli {
    const aoticache_cli_program *program;
    char **argv;
    int argc;
    int position;
    bool operands_only; /* after "--" */
    bool is_done;       /* help or the version was printed */
    int exit_code;      /* if aoticache_cli_parse() returned false */

    const char *directory; /* --cache-dir; NULL: the default */
    bool json, quiet, verbose, allow_shared;
    aoticache_cli_color color;
};

/* Begins a run. argv[first] is the first word of this program's own. Also makes a closed pipe a write error instead of a
 * signal: work in progress is finished, and then aoticache_cli_finish() ends the program with SIGPIPE. */
void aoticache_cli_begin(aoticache_cli *cli, const aoticache_cli_program *program, int argc, char **argv, int first);

/*
 * Reads the command line into the struct that the rows of the program's table describe; members of options that are not
 * given stay unchanged. Returns false if there is nothing more to do: help was printed, or a usage error. Its lists are then
 * freed; return cli->exit_code.
 *
 * Accepts --name value, --name=value, -n value; names are never abbreviated; a value that begins with "--" needs the form
 * with '='. So does a value that may be left out, if the program has operands. Options and operands are read in the order in
 * which they are given.
 */
bool aoticache_cli_parse(aoticache_cli *cli, void *target);

/* Prints "PROGRAM: message; see 'HINT'" and returns the exit code for wrong usage. */
int aoticache_cli_usage_error(const aoticache_cli *cli, const char *format, ...) AOTICACHE_PRINTF(2, 3);

/*
 * Prints that `value` is not option->wanted. If a SIZE, SIZE|PERCENT, AGE or TIME (option->value) lacks its unit, it names
 * the unit that was probably meant. Returns the exit code for wrong usage.
 */
int aoticache_cli_refuse_value(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value);

/*
 * Parses the value of --option as one of `words` (ends with NULL); "op" is accepted for "operator". Returns false if it is
 * not one of them; the printed error lists all of them, and the nearest.
 */
bool aoticache_cli_parse_word(const aoticache_cli *cli, const char *option, const char *value, const char *const *words,
                              size_t *ret_position);

/* Prints a line of help, "  name      text", with the text from `column` on, in as many lines as it needs. */
void aoticache_cli_print_item(const char *name, int column, const char *text);
/* Prints the text as lines of at most 80 columns. */
void aoticache_cli_print_paragraph(const char *text);
/* Prints the output of --help, or with is_all that of --help all: everything. */
void aoticache_cli_print_help(const aoticache_cli_program *program, const aoticache_cli_option *common, bool is_all);
void aoticache_cli_print_exit_codes(void);

/* Returns the word of `words` (ends with NULL) nearest to `word`, for "did you mean"; NULL if none is near. */
const char *aoticache_cli_nearest(const char *word, const char *const *words);

/*
 * ---- messages, on standard error ----
 *
 * With --json each is an object on its own line: "level" (error, warning, note, debug), "program", "message", and if they
 * are known "status" (of a call of the library) and "help" (a command).
 */

/* Prints "PROGRAM: message". Newlines in it are kept, other control characters are escaped. Returns
 * AOTICACHE_CLI_EXIT_FAILURE. */
int aoticache_cli_error(const aoticache_cli *cli, const char *format, ...) AOTICACHE_PRINTF(2, 3);
/* Prints the message of a failed call, and returns the exit code for its status. */
int aoticache_cli_fail(const aoticache_cli *cli, aoticache_status status, const aoticache_error *error);
/* Prints a note; silent with --quiet. */
void aoticache_cli_note(const aoticache_cli *cli, const char *format, ...) AOTICACHE_PRINTF(2, 3);
/* Returns a logger that prints warnings and errors of the library; everything with --verbose; nothing with --quiet. `cli`
 * must outlive it. */
aoticache_logger aoticache_cli_logger(const aoticache_cli *cli);

/* A repeatedly updated line of a terminal, "12/80 objects", some ten times a second at most; prints nothing on anything
 * else. */
typedef struct aoticache_cli_progress {
    const aoticache_cli *cli;
    const char *what;
    uint64_t shown_ns;
    bool visible;
} aoticache_cli_progress;
void aoticache_cli_progress_show(aoticache_cli_progress *progress, uint64_t done, uint64_t all);
/* Removes the line; call it before anything else is printed. */
void aoticache_cli_progress_clear(aoticache_cli_progress *progress);

/*
 * Shows the duration of a call that prints nothing itself, from half a second on. `what` is borrowed until the end. begin
 * returns NULL if no thread could be started; end accepts that.
 */
typedef struct aoticache_cli_waiting aoticache_cli_waiting;
aoticache_cli_waiting *aoticache_cli_waiting_begin(const aoticache_cli *cli, const char *what);
void aoticache_cli_waiting_end(aoticache_cli_waiting *waiting);

/* Installs `handler` for SIGINT, SIGTERM and SIGHUP, with the flags of sigaction(); a signal that is ignored stays ignored
 * (nohup). */
void aoticache_cli_catch_signals(void (*handler)(int), int flags);

/* ---- results, on standard output ---- */

/*
 * Ends a program: flushes the output, and if that fails (full disk) prints an error and returns exit code 1. If the reader
 * is gone (`aoticache ls | head -1`) it ends the program with SIGPIPE, without a message.
 */
int aoticache_cli_finish(const aoticache_cli *cli, int exit_code);

/* Returns whether a write has failed: a program that only prints need not continue; aoticache_cli_finish() reports the
 * reason. */
bool aoticache_cli_output_failed(void);
/* Return whether the reader is gone, and end the program; for code that writes to the descriptor itself. */
bool aoticache_cli_reader_is_gone(void);
_Noreturn void aoticache_cli_end_by_broken_pipe(void);

typedef enum aoticache_cli_style {
    AOTICACHE_CLI_PLAIN,
    AOTICACHE_CLI_BOLD,
    AOTICACHE_CLI_DIM,
    AOTICACHE_CLI_GREEN,
    AOTICACHE_CLI_YELLOW,
    AOTICACHE_CLI_RED,
} aoticache_cli_style;
/* Returns the terminal's sequence that begins a style (PLAIN ends it) on standard output; "" if there are to be no colours. */
const char *aoticache_cli_style_begin(const aoticache_cli *cli, aoticache_cli_style style);

/* Return the columns and lines of the terminal on standard output: according to COLUMNS and LINES, otherwise to the terminal
 * itself; 0 if it is not a terminal, or its size is unknown: nothing is then shortened. */
size_t aoticache_cli_terminal_width(void);
size_t aoticache_cli_terminal_height(void);

/* Returns the length of the UTF-8 sequence at `bytes` and its code point; 0 if there is none (overlong, surrogate,
 * truncated). */
size_t aoticache_cli_decode_utf8(const unsigned char *bytes, uint32_t *ret_point);
/* Returns text that is safe to print: control characters, direction marks and bytes that are not UTF-8 become \n, \t, \xNN.
 * The caller frees it with free(). */
char *aoticache_cli_escape(const char *text);
/* Does the same, but keeps newlines and tabs. */
char *aoticache_cli_escape_lines(const char *text);
/* Returns the number of columns of escaped text: its code points. */
size_t aoticache_cli_columns(const char *text);

/* ---- tables ---- */

typedef struct aoticache_cli_table aoticache_cli_table;

typedef struct aoticache_cli_column {
    const char *title;
    bool right; /* numbers */
    unsigned char
        gives_way; /* on a narrow terminal: columns of the highest number first; 1 (last) is cut with "...", higher ones are
                    * cut, too, and then left out; 0: never */
} aoticache_cli_column;

/* Creates a table. `columns` is borrowed until the table is freed. */
aoticache_cli_table *aoticache_cli_table_create(const aoticache_cli_column *columns, size_t column_count);
/* Adds a row. cells: column_count strings, escaped and copied. style: of the whole row. */
void aoticache_cli_table_add(aoticache_cli_table *table, aoticache_cli_style style, const char *const *cells);
/* Prints the rows and removes them; prints the titles the first time. A long table is printed in blocks: widths only grow. */
void aoticache_cli_table_print(aoticache_cli_table *table, const aoticache_cli *cli);
void aoticache_cli_table_free(aoticache_cli_table *table);

/* Prints "name        value": one line of a list, with the value escaped. */
void aoticache_cli_print_field(const aoticache_cli *cli, const char *name, const char *format, ...)
    AOTICACHE_PRINTF(3, 4);

/* ---- JSON: objects keep the order in which members were set ---- */

/* Takes ownership of `value`; ends the program if it is NULL (out of memory). */
void aoticache_cli_json_set(json_t *object, const char *name, json_t *value);
void aoticache_cli_json_append(json_t *array, json_t *value);
json_t *aoticache_cli_json_object(void);
json_t *aoticache_cli_json_array(void);
json_t *aoticache_cli_json_text(const char *text); /* null for NULL; escaped if it is not UTF-8 */
json_t *aoticache_cli_json_count(uint64_t value);
json_t *aoticache_cli_json_digest(const aoticache_digest *digest);
json_t *aoticache_cli_json_number(double value); /* "NaN", "Infinity", "-Infinity" as strings */
/* Prints and frees. */
void aoticache_cli_json_print(json_t *value);

/* ---- numbers, strictly: the whole text, in range. Otherwise the functions return false. ---- */

bool aoticache_cli_parse_int(const char *text, int64_t minimum, int64_t maximum, int64_t *ret_value);
bool aoticache_cli_parse_double(const char *text, double *ret_value);
/* Parses "512B", "10G", "1.5GiB" (powers of 1024), "10GB" (powers of 1000). A number without a unit is refused, except 0. */
bool aoticache_cli_parse_size(const char *text, uint64_t *ret_bytes);
/* Parses "30d", "12h", "15m", "90s", "2w", "1.5d" to seconds. A number without a unit is refused, except 0. */
bool aoticache_cli_parse_age(const char *text, uint64_t *ret_seconds);

/* ---- files that other programs may read while they are written ---- */

/*
 * Writes to standard output if path is NULL; otherwise replaces a file atomically: readers see the old or the new one.
 * for_all: all users may read it, whatever the umask is. Returns an exit code.
 */
int aoticache_cli_write_file(const aoticache_cli *cli, const char *path, bool for_all, const char *text, size_t size);

/* Prometheus' text exposition format, version 0.0.4: every name begins with "aoticache_", every sample has the directory as
 * a label. */
typedef struct aoticache_cli_exposition {
    const char *directory; /* borrowed */
    FILE *out;
    char *text;
    size_t size;
} aoticache_cli_exposition;

void aoticache_cli_exposition_begin(aoticache_cli_exposition *exposition, const char *directory);
/* Writes the lines before the samples of a name. type: "counter", "gauge", "histogram". */
void aoticache_cli_exposition_describe(aoticache_cli_exposition *exposition, const char *name, const char *type,
                                       const char *help);
/* Writes a sample. label NULL: only the directory. */
void aoticache_cli_exposition_sample(aoticache_cli_exposition *exposition, const char *name, const char *label,
                                     const char *label_value, double value);
/* Writes a name with one sample. */
void aoticache_cli_exposition_single(aoticache_cli_exposition *exposition, const char *name, const char *type,
                                     const char *help, double value);
/* Writes which program wrote this, and its version. */
void aoticache_cli_exposition_build_info(aoticache_cli_exposition *exposition, const char *program);
/* Returns the text, exposition->size bytes; the caller frees it with free(). */
char *aoticache_cli_exposition_end(aoticache_cli_exposition *exposition);

/* ---- human-readable units ---- */

#define AOTICACHE_CLI_UNIT_BYTES 32
const char *aoticache_cli_format_bytes(uint64_t bytes, char ret_text[AOTICACHE_CLI_UNIT_BYTES]); /* "361.2 KiB" */
const char *aoticache_cli_format_duration(uint64_t ns, char ret_text[AOTICACHE_CLI_UNIT_BYTES]); /* "3.41 us" */
const char *aoticache_cli_format_age(int64_t wall_ns, char ret_text[AOTICACHE_CLI_UNIT_BYTES]);  /* "5 min" */
const char *aoticache_cli_format_time(int64_t wall_ns,
                                      char ret_text[AOTICACHE_CLI_UNIT_BYTES]); /* "2025-01-31 12:00:00 UTC" */

/* ---- memory: these functions end the program if memory is short ---- */

void *aoticache_cli_allocate(size_t count, size_t size); /* zeroed */
void *aoticache_cli_resize(void *pointer, size_t count, size_t size);
/* Returns items of a list that grows by one, with space for one more than `count`; capacity doubles, so most calls do
 * nothing. */
void *aoticache_cli_grow(void *items, size_t count, size_t size);
_Noreturn void aoticache_cli_out_of_memory(void);                         /* for allocations that failed elsewhere */
char *aoticache_cli_text(const char *format, ...) AOTICACHE_PRINTF(1, 2); /* the caller frees it with free() */

/* ---- the cache ---- */

struct aoticache_config;
/* Returns the configuration of this machine and user (cache/config/config.h), read on first use, which prints its errors. */
const struct aoticache_config *aoticache_cli_config(const aoticache_cli *cli);
/* Returns the options of a cache from the command line, then the environment and the files; strings are borrowed. */
aoticache_cache_options aoticache_cli_cache_options(const aoticache_cli *cli);

/*
 * Opens the directory that the options name. create: create it if it is missing; otherwise that is AOTICACHE_NOT_FOUND.
 * Returns the library's status; the caller prints it.
 */
aoticache_status aoticache_cli_open_cache(const aoticache_cli *cli, bool create, aoticache_cache **ret_cache,
                                          aoticache_error *ret_error);

/* Writes the directory that --cache-dir, the environment or the configuration names, for messages. */
void aoticache_cli_directory(const aoticache_cli *cli, char ret_path[PATH_MAX]);

/*
 * Returns the origin of the directory's name: "--cache-dir", "$AOTICACHE_DIR", "/etc/aoticache.conf:2". NULL: it is the
 * default. A named directory that does not exist is a mistake; a default that does not exist is a cache that was never used.
 */
const char *aoticache_cli_directory_origin(const aoticache_cli *cli);

/* Reports that the directory does not exist, and which option, variable or setting named it. Returns
 * AOTICACHE_CLI_EXIT_ABSENT. */
int aoticache_cli_report_absent(const aoticache_cli *cli, const char *directory, const char *origin);

struct stat;
/*
 * Changes the user of this process, which must be root, to the owner of the directory, with that user's groups, and prints
 * that. `found`: the result of stat() on the directory. Returns an exit code.
 */
int aoticache_cli_become_owner(const aoticache_cli *cli, const char *directory, const struct stat *found);
/*
 * Becomes the owner of the cache directory, with that user's configuration and keys, if this process is root and the
 * directory belongs to another user. Does nothing if the directory is shared on purpose (allow_shared). Returns an exit
 * code.
 */
int aoticache_cli_look_as_owner(const aoticache_cli *cli);

/*
 * Opens the directory, or prints what went wrong. If the directory is opened without being created, a process of root
 * changes to the directory's owner (aoticache_cli_look_as_owner()). Returns AOTICACHE_CLI_EXIT_OK, or the program's exit
 * code: if the directory does not exist, AOTICACHE_CLI_EXIT_ABSENT if it was named, AOTICACHE_CLI_EXIT_NOT_FOUND if it is
 * the default.
 */
int aoticache_cli_open_or_report(const aoticache_cli *cli, bool create, aoticache_cache **ret_cache);

/*
 * Does the same for programs that examine a whole cache. If the default directory does not exist, there is nothing to
 * examine: prints a note, sets *ret_cache to NULL and returns AOTICACHE_CLI_EXIT_OK.
 */
int aoticache_cli_open_if_there(const aoticache_cli *cli, aoticache_cache **ret_cache);

#endif
