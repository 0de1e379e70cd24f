/* WebSocket frames (RFC 6455) that carry STOMP. It is optional: stompring/stomp/websocket_frames.py has the same
   functions in Python, and says what they do. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { TEXT = 0x81, BINARY = 0x82, MASKED = 0x80, LONGEST_HEADER = 10 };

#define NOT_ASCII UINT64_C(0x8080808080808080)

/* Writes the unmasked payload to `to`. Returns whether it is ASCII. */
static int unmask(unsigned char *to, const unsigned char *from, Py_ssize_t size, const unsigned char *mask) {
    uint32_t four;
    uint64_t bits = 0, eight;
    Py_ssize_t at = 0;
    memcpy(&four, mask, 4);
    const uint64_t twice = (uint64_t)four << 32 | four;
    for (; at + 8 <= size; at += 8) {
        memcpy(&eight, from + at, 8);
        eight ^= twice;
        bits |= eight;
        memcpy(to + at, &eight, 8);
    }
    for (; at < size; at++) {
        to[at] = from[at] ^ mask[at & 3];
        bits |= to[at];
    }
    return !(bits & NOT_ASCII);
}

static int is_utf8(const unsigned char *text, Py_ssize_t size) {
    PyObject *decoded = PyUnicode_DecodeUTF8((const char *)text, size, NULL);
    if (decoded == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(decoded);
    return 1;
}

static PyObject *read_short_messages(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) {
    if (count != 3 || !PyBytes_CheckExact(arguments[0])) { /* the third is `unmask`, which only Python needs */
        PyErr_SetString(PyExc_TypeError, "read_short_messages(data: bytes, longest: int, unmask)");
        return NULL;
    }
    Py_ssize_t longest = PyLong_AsSsize_t(arguments[1]);
    if (longest == -1 && PyErr_Occurred()) return NULL;
    const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(arguments[0]);
    Py_ssize_t end = PyBytes_GET_SIZE(arguments[0]), at = 0, written = 0;
    int incomplete = 0;
    PyObject *payloads = PyBytes_FromStringAndSize(NULL, end);
    if (payloads == NULL) return NULL;
    unsigned char *to = (unsigned char *)PyBytes_AS_STRING(payloads);
    for (;;) {
        if (end - at < 2) {
            incomplete = 1;
            break;
        }
        int first = data[at];
        Py_ssize_t size = (Py_ssize_t)data[at + 1] - MASKED, start = at + 6;
        if ((first != BINARY && first != TEXT) || size < 0 || size == 127) break;
        if (size == 126) {
            if (end - at < 4) {
                incomplete = 1;
                break;
            }
            size = data[at + 2] << 8 | data[at + 3];
            if (size < 126) break;
            start = at + 8;
        }
        if (size > longest) break;
        if (size > end - start) {
            incomplete = 1;
            break;
        }
        int ascii = unmask(to + written, data + start, size, data + start - 4);
        if (first == TEXT && !ascii && !is_utf8(to + written, size)) break;
        written += size;
        at = start + size;
    }
    if (_PyBytes_Resize(&payloads, written)) return NULL;
    return Py_BuildValue("(NnO)", payloads, at, incomplete ? Py_True : Py_False);
}

static unsigned char *put_header(unsigned char *to, Py_ssize_t size) {
    *to++ = BINARY;
    if (size < 126) {
        *to++ = (unsigned char)size;
        return to;
    }
    int bytes = size < 65536 ? 2 : 8;
    *to++ = bytes == 2 ? 126 : 127;
    while (bytes--) *to++ = (unsigned char)((uint64_t)size >> 8 * bytes);
    return to;
}

/* Whether the part is the last one of its message. */
static int ends(PyObject *part) {
    Py_ssize_t size = PyBytes_GET_SIZE(part);
    return size && PyBytes_AS_STRING(part)[size - 1] == '\n';
}

static PyObject *pack_binary(PyObject *Py_UNUSED(module), PyObject *parts) {
    if (!PyList_CheckExact(parts)) {
        PyErr_SetString(PyExc_TypeError, "pack_binary(parts: list[bytes])");
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(parts), total = 0, first = 0, size = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *part = PyList_GET_ITEM(parts, i);
        if (!PyBytes_CheckExact(part)) {
            PyErr_SetString(PyExc_TypeError, "pack_binary(parts: list[bytes])");
            return NULL;
        }
        total += PyBytes_GET_SIZE(part) + (ends(part) ? LONGEST_HEADER : 0);
    }
    PyObject *packed = PyBytes_FromStringAndSize(NULL, total);
    if (packed == NULL) return NULL;
    unsigned char *begin = (unsigned char *)PyBytes_AS_STRING(packed), *to = begin;
    for (Py_ssize_t i = 0; i < count; i++) {
        size += PyBytes_GET_SIZE(PyList_GET_ITEM(parts, i));
        if (!ends(PyList_GET_ITEM(parts, i))) continue;
        to = put_header(to, size);
        for (; first <= i; first++) {
            PyObject *part = PyList_GET_ITEM(parts, first);
            memcpy(to, PyBytes_AS_STRING(part), (size_t)PyBytes_GET_SIZE(part));
            to += PyBytes_GET_SIZE(part);
        }
        size = 0;
    }
    if (_PyBytes_Resize(&packed, to - begin)) return NULL;
    return packed;
}

static PyMethodDef methods[] = {
    {"read_short_messages", (PyCFunction)(void (*)(void))read_short_messages, METH_FASTCALL, NULL},
    {"pack_binary", pack_binary, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef websocket_module = {
    PyModuleDef_HEAD_INIT, "_websocket", "WebSocket frames that carry STOMP.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__websocket(void) { return PyModuleDef_Init(&websocket_module); }
