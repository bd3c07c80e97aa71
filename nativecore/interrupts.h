/* Signals that arrive while CPython multiplies or divides long integers.

   CPython lets signal handlers run inside these; one that raises KeyboardInterrupt makes them fail. mypyc
   takes every failure for a lack of memory and ends the process at once, with all its temporary files left.
   Here the calculation is done once more and the exception is raised by the next Python code instead. */
#ifndef SERVETWIN_INTERRUPTS_H
#define SERVETWIN_INTERRUPTS_H
#include <Python.h>

static int servetwin_raise(void *error)
{
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)error), (PyObject *)error);
    Py_DECREF((PyObject *)error);
    return -1;
}

static PyObject *servetwin_uninterrupted(binaryfunc operation, PyObject *left, PyObject *right)
{
    PyObject *result = operation(left, right), *type, *error, *trace;
    if (result != NULL || !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)
        || !PyLong_CheckExact(left) || !PyLong_CheckExact(right))
        return result;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    result = servetwin_uninterrupted(operation, left, right);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    if (Py_AddPendingCall(servetwin_raise, error) < 0)
        Py_XDECREF(error); /* 32 others wait to be raised */
    return result;
}

#define PyNumber_Multiply(left, right) servetwin_uninterrupted(PyNumber_Multiply, left, right)
#define PyNumber_FloorDivide(left, right) servetwin_uninterrupted(PyNumber_FloorDivide, left, right)
#define PyNumber_Remainder(left, right) servetwin_uninterrupted(PyNumber_Remainder, left, right)
#endif
