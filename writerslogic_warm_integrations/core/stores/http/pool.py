from warm_integrations.core.stores.http.pool import *
