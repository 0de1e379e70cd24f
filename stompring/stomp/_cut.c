/* Cuts the header block of a SEND without decoding it. It is optional: stompring/stomp/parser.py works without it.

   For any unusual block it returns None, and the Python code decodes the block. Only memchr checks offsets against the
   length of `data`: no byte at or after `limit` is read. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

enum { KEY = 1, HIDDEN = 2, STOP = 4, LENGTH = 8, RECEIPT = 16, IDENTIFIER = 32 };

#define MOST_LINES 32
#define MOST_NAMES 128
#define LONGEST_NAME 32
#define MOST_DIGITS 18

typedef struct {
    const char *text;
    Py_ssize_t size;
    int use;
} Name;

typedef struct {
    PyObject_HEAD
    PyObject *names; /* a tuple of bytes, which owns the texts */
    Name table[MOST_NAMES];
    int first[LONGEST_NAME + 2]; /* of the names of each length in the table, which is sorted by length */
    Py_ssize_t most_headers, longest_block, longest_body;
    int escapes; /* whether the escapes of STOMP 1.2 apply */
} Cutter;

typedef struct {
    const char *name;
    Py_ssize_t name_size;
    const char *line; /* from the name on, with its line feed */
    Py_ssize_t size;
    int use;
} Line;

static int use_of(const Cutter *self, const char *name, Py_ssize_t size) {
    if (size > LONGEST_NAME) return 0;
    for (int i = self->first[size]; i < self->first[size + 1]; i++)
        if (self->table[i].text[0] == name[0] && !memcmp(self->table[i].text, name, (size_t)size)) return self->table[i].use;
    return 0;
}

/* Whether each backslash begins an escape in a value that is not compared. */
static int only_escapes(const Line *lines, int count) {
    for (int i = 0; i < count; i++) {
        const char *at = lines[i].line, *end = at + lines[i].size;
        for (; (at = memchr(at, '\\', (size_t)(end - at))) != NULL; at += 2)
            if ((lines[i].use & (KEY | IDENTIFIER)) || at < lines[i].line + lines[i].name_size || !strchr("nrc\\", at[1])) return 0;
    }
    return 1;
}

static PyObject *optional(const char *text, Py_ssize_t size) {
    if (text == NULL) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(text, size);
}

static PyObject *joined(const Line *lines, int count, Py_ssize_t size, int marks) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, size + marks);
    if (made == NULL) return NULL;
    char *at = PyBytes_AS_STRING(made);
    for (int i = 0; i < count; i++) {
        memcpy(at, lines[i].line, (size_t)lines[i].size);
        at += lines[i].size;
    }
    memset(at, '\n', (size_t)marks);
    return made;
}

PyDoc_STRVAR(cut_doc,
"cut(data, start)\n--\n\n"
"(offset after the block, content-length or -1, key, receipt or None, lines that are passed on, duplicate id or None),\n"
"or None.");

static PyObject *cutter_cut(Cutter *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2 || !PyBytes_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "cut(data: bytes, start: int)");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(arguments[1]);
    if (start == -1 && PyErr_Occurred()) return NULL;
    const char *data = PyBytes_AS_STRING(arguments[0]);
    Py_ssize_t size = PyBytes_GET_SIZE(arguments[0]);
    if (start < 0 || start > size || size - start < 6 || memcmp(data + start, "SEND\n", 5)) Py_RETURN_NONE;
    const char *block = data + start, *limit = data + size, *at = block + 5;
    if (limit - block > self->longest_block + 2) limit = block + self->longest_block + 2;

    Line lines[MOST_LINES], keys[MOST_LINES], passed[MOST_LINES];
    int n = 0, n_keys = 0, n_passed = 0;
    Py_ssize_t key_size = 0, passed_size = 0;
    unsigned long long seen = 0;
    long long length = -1;
    const char *receipt = NULL, *identifier = NULL;
    Py_ssize_t receipt_size = 0, identifier_size = 0;
    for (;;) {
        if (at >= limit) Py_RETURN_NONE;
        if (*at == '\n') break; /* the empty line */
        const char *feed = memchr(at, '\n', (size_t)(limit - at));
        if (feed == NULL || n == MOST_LINES || n >= self->most_headers) Py_RETURN_NONE;
        const char *colon = memchr(at, ':', (size_t)(feed - at));
        if (colon == NULL || colon == at) Py_RETURN_NONE;
        const char *value = colon + 1;
        Py_ssize_t name_size = colon - at, value_size = feed - value;
        int use = use_of(self, at, name_size);
        if (use & STOP) Py_RETURN_NONE;
        Line line = {at, name_size, at, feed + 1 - at, use};
        unsigned mixed = (unsigned)name_size * 7u + (unsigned char)at[0] * 3u + (unsigned char)colon[-1]
                         + (unsigned char)at[name_size / 2] * 5u;
        unsigned long long bit = 1ULL << (mixed & 63);
        if (seen & bit)
            for (int i = 0; i < n; i++)
                if (lines[i].name_size == name_size && !memcmp(lines[i].name, at, (size_t)name_size)) Py_RETURN_NONE;
        seen |= bit;
        lines[n++] = line;
        if (use & LENGTH) {
            if (value_size < 1 || value_size > MOST_DIGITS) Py_RETURN_NONE;
            length = 0;
            for (const char *digit = value; digit < feed; digit++) {
                if (*digit < '0' || *digit > '9') Py_RETURN_NONE;
                length = length * 10 + (*digit - '0');
            }
            if (length > self->longest_body) Py_RETURN_NONE;
        }
        if (use & RECEIPT) {
            receipt = value;
            receipt_size = value_size;
        }
        if (use & IDENTIFIER) {
            if (!value_size) Py_RETURN_NONE; /* an empty id is not one */
            identifier = value;
            identifier_size = value_size;
        }
        if (use & KEY) {
            keys[n_keys++] = line;
            key_size += line.size;
        }
        if (!(use & HIDDEN)) {
            if (memchr(value, ':', (size_t)value_size) != NULL) Py_RETURN_NONE; /* it must be escaped */
            passed[n_passed++] = line;
            passed_size += line.size;
        }
        at = feed + 1;
    }
    size_t block_size = (size_t)(at - block);
    if (memchr(block, '\r', block_size) || memchr(block, '\0', block_size)) Py_RETURN_NONE;
    if (memchr(block, '\\', block_size) && !(self->escapes && only_escapes(lines, n))) Py_RETURN_NONE;

    PyObject *key = joined(keys, n_keys, key_size, (receipt != NULL) + 2 * (identifier != NULL));
    PyObject *rest = joined(passed, n_passed, passed_size, 0);
    PyObject *asked = optional(receipt, receipt_size), *known_by = optional(identifier, identifier_size);
    PyObject *end = PyLong_FromSsize_t(at + 1 - data), *bytes = PyLong_FromLongLong(length);
    PyObject *found = PyTuple_New(6);
    if (key == NULL || rest == NULL || asked == NULL || known_by == NULL || end == NULL || bytes == NULL
        || found == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(rest);
        Py_XDECREF(asked);
        Py_XDECREF(known_by);
        Py_XDECREF(end);
        Py_XDECREF(bytes);
        Py_XDECREF(found);
        return NULL;
    }
    PyTuple_SET_ITEM(found, 0, end);
    PyTuple_SET_ITEM(found, 1, bytes);
    PyTuple_SET_ITEM(found, 2, key);
    PyTuple_SET_ITEM(found, 3, asked);
    PyTuple_SET_ITEM(found, 4, rest);
    PyTuple_SET_ITEM(found, 5, known_by);
    return found;
}

static PyObject *cutter_new(PyTypeObject *type, PyObject *arguments, PyObject *named) {
    PyObject *uses;
    Py_ssize_t most_headers, longest_block, longest_body;
    int escapes = 0;
    if (named != NULL && PyDict_GET_SIZE(named)) {
        PyErr_SetString(PyExc_TypeError, "Cutter takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "O!nnn|p", &PyTuple_Type, &uses, &most_headers, &longest_block, &longest_body,
                          &escapes))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(uses);
    if (count > MOST_NAMES || most_headers < 0 || longest_block < 0 || longest_block > PY_SSIZE_T_MAX / 2
        || longest_body < 0) {
        PyErr_SetString(PyExc_ValueError, "too many names, or a limit below 0");
        return NULL;
    }
    Cutter *self = (Cutter *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(uses);
    self->names = uses;
    self->most_headers = most_headers;
    self->longest_block = longest_block;
    self->longest_body = longest_body;
    self->escapes = escapes;
    int n = 0;
    for (Py_ssize_t length = 0; length <= LONGEST_NAME; length++) {
        self->first[length] = n;
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *name;
            int use;
            if (!PyTuple_Check(PyTuple_GET_ITEM(uses, i))
                || !PyArg_ParseTuple(PyTuple_GET_ITEM(uses, i), "O!i", &PyBytes_Type, &name, &use)) {
                if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a name and its use are expected");
                Py_DECREF(self);
                return NULL;
            }
            if (PyBytes_GET_SIZE(name) > LONGEST_NAME) {
                PyErr_SetString(PyExc_ValueError, "a name is too long");
                Py_DECREF(self);
                return NULL;
            }
            if (PyBytes_GET_SIZE(name) == length) {
                Name entry = {PyBytes_AS_STRING(name), length, use};
                self->table[n++] = entry;
            }
        }
    }
    self->first[LONGEST_NAME + 1] = n;
    return (PyObject *)self;
}

static void cutter_dealloc(Cutter *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->names);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef cutter_methods[] = {
    {"cut", (PyCFunction)(void (*)(void))cutter_cut, METH_FASTCALL, cut_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cutter_slots[] = {
    {Py_tp_doc, "Cutter(names and uses, most headers, longest block, longest body, escapes of 1.2)"},
    {Py_tp_new, cutter_new},
    {Py_tp_dealloc, cutter_dealloc},
    {Py_tp_methods, cutter_methods},
    {0, NULL},
};

static PyType_Spec cutter_spec = {
    "stompring.stomp._cut.Cutter", sizeof(Cutter), 0, Py_TPFLAGS_DEFAULT, cutter_slots,
};

static int cut_exec(PyObject *module) {
    PyObject *type = PyType_FromSpec(&cutter_spec);
    if (type == NULL) return -1;
    int failed = PyModule_AddObjectRef(module, "Cutter", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot cut_slots[] = {
    {Py_mod_exec, cut_exec},
    {0, NULL},
};

static struct PyModuleDef cut_module = {
    PyModuleDef_HEAD_INIT, "_cut", "Cuts the header blocks of SENDs.", 0, NULL, cut_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__cut(void) { return PyModuleDef_Init(&cut_module); }
