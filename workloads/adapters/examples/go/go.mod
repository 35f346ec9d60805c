module lock

go 1.18
