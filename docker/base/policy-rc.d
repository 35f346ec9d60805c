#!/bin/sh
exit 101
