from warm_integrations.core.catalog import *
